"""Mistakes of a newcomer in a call of `simulate` or a command: clear words, before any folder is made."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import flexfl
from flexfl.cli.main import main
from flexfl.control import Rule
from flexfl.control.baselines import FixedCompute, SendAll
from flexfl.errors import FlexFLWarning, InputError, RuleError, RunDirectoryError
from flexfl.results import Run

TRAIN = {"iterations": 4, "evaluate_every": 2, "batch_size": 4}


def features(**more: Any) -> torch.Tensor:
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(1), **more)


def labels(low: int = 0, high: int = 3) -> torch.Tensor:
    return torch.randint(low, high, (40,), generator=torch.Generator().manual_seed(2))


def data(x: torch.Tensor | None = None, y: torch.Tensor | None = None) -> flexfl.Federated:
    return flexfl.Federated.split((features() if x is None else x, labels() if y is None else y), clients=4)


def simulate(**more: Any) -> flexfl.Result:
    given: dict[str, Any] = {"model": nn.Linear(6, 3), "data": data(), "train": TRAIN}
    return flexfl.simulate(**(given | more))


def refused(tmp_path: Path, **more: Any) -> str:
    """The message of a call that is refused before the run directory is made."""
    with pytest.raises(InputError) as caught:
        simulate(out=tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()
    return str(caught.value)


# Data and model ----------------------------------------------------------------------------


def test_one_hot_labels_are_not_trained_by_the_squared_error(tmp_path: Path) -> None:
    one_hot = nn.functional.one_hot(labels(), 3)
    for given in (one_hot.float(), one_hot):
        message = refused(tmp_path, data=data(y=given))
        assert "data (labels) must be class numbers, they look one-hot, got (40, 3)" in message
        assert "give y.argmax(1); or a loss" in message
    result = simulate(data=data(y=one_hot.float()), loss=nn.functional.cross_entropy)
    assert result.summary["iterations"] == 4


def test_targets_of_a_regression_are_not_taken_for_one_hot() -> None:
    """Also such as are all 0 or 1: a single column, and two that may both be 1."""
    assert simulate(data=data(y=labels(0, 2)[:, None].float()), model=nn.Linear(6, 1)).summary["iterations"]
    several = torch.stack([labels(0, 2), 1 - labels(0, 2), torch.ones(40)], dim=1).float()
    assert simulate(data=data(y=several)).summary["iterations"] == 4


def test_classes_that_begin_at_one(tmp_path: Path) -> None:
    message = refused(tmp_path, data=data(y=labels(1, 4)))
    assert "data (labels) must be classes from 0 on, got '1 to 3'; give y - 1" in message
    assert "Linear" not in message
    assert "end with nn.Linear(…, 4)" in refused(tmp_path, data=data(y=labels(1, 4)), model=nn.Linear(6, 2))
    assert simulate(data=data(y=labels(1, 4)), model=nn.Linear(6, 4)).summary["iterations"] == 4


def test_bytes_of_images(tmp_path: Path) -> None:
    image = (features().abs() * 50).to(torch.uint8)
    assert "convert to float32, e.g. x / 255" in refused(tmp_path, data=data(image))
    assert "convert to float32: x.float()" in refused(tmp_path, data=data(image.long()))
    words = nn.Sequential(nn.Embedding(256, 2), nn.Flatten(), nn.Linear(12, 3))
    assert simulate(data=data(image.long()), model=words).summary["iterations"] == 4


def test_classes_as_floats_and_in_a_column(tmp_path: Path) -> None:
    assert "for classes give y.long()" in refused(tmp_path, data=data(y=labels().float()))
    assert "give the labels as y.squeeze(1)" in refused(tmp_path, data=data(y=labels()[:, None]))


# Arguments ---------------------------------------------------------------------------------


def test_settings_as_keywords_are_answered_with_their_section() -> None:
    with pytest.raises(InputError) as caught:
        flexfl.simulate(iterations=5, lr=0.1, tradeoff=0.2, budgt=1, zzz=2, train=7)  # type: ignore[arg-type]
    message = str(caught.value)
    for words in (
        "iterations is a setting of the section train, got 5; write train={'iterations': 5}",
        "write train={'learning_rate': 0.1}",
        "write control={'tradeoff': 0.2}",
        "budgt is not a section of a spec, got 1; did you mean budget?",
        "zzz is not a section of a spec, got 2; known: data",
        "train must be a table of settings, got 7; for example train={'iterations': …}",
    ):
        assert words in message


def test_names_of_data_and_models_belong_into_tables() -> None:
    with pytest.raises(InputError) as caught:
        flexfl.simulate(model="cnn", data="fashion-mini")  # type: ignore[arg-type]
    assert '{"name": "cnn"}' in str(caught.value)
    assert 'data={"name": "fashion-mini"}' in str(caught.value)


def test_python_and_the_command_line_speak_their_own_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    simulate(out=out)
    with pytest.raises(RunDirectoryError) as caught:
        simulate(out=out)
    assert "add resume=True to continue it, or choose another out=…" in str(caught.value)
    assert "--" not in str(caught.value)
    monkeypatch.setattr(sys, "argv", ["flexfl", "run", "quickstart", "--out", str(out), "--quiet"])
    with pytest.raises(SystemExit):
        main()
    assert "add --resume to continue it, or choose another --out" in capsys.readouterr().err


def test_a_run_from_a_file_is_resumed_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of its data is relative to the file."""
    folder = tmp_path / "specs"
    folder.mkdir()
    x, y = features().numpy(), labels().numpy()
    np.savez(folder / "mine.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    text = '[data]\nname = "file"\npath = "mine.npz"\npartition = "iid"\nclients = 4\n'
    (folder / "spec.toml").write_text(f"{text}[train]\niterations = 3\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    flexfl.simulate("specs/spec.toml", model=nn.Linear(6, 3), out=tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    longer = {"iterations": 5}
    resumed = flexfl.simulate(
        "../specs/spec.toml", model=nn.Linear(6, 3), train=longer, out=tmp_path / "run", resume=True
    )
    assert resumed.summary["iterations"] == 5


# Notes -------------------------------------------------------------------------------------


def test_what_a_policy_does_not_use_is_said_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    control = {"policy": "top-k", "send_ratio": 0.5}
    left, unused = (
        "top-k does not decide for compute: every client computes in every iteration",
        "top-k does not use budget.uplink: reports show it beside what is spent",
    )
    with pytest.warns(FlexFLWarning) as caught:
        result = simulate(control=control, budget={"uplink": 0.01}, out=tmp_path / "run")
    assert [str(warning.message) for warning in caught] == [left, unused]
    assert caught[0].filename == __file__  # it is the caller's line
    assert result.summary["notes"] == [left, unused]
    assert (Run(tmp_path / "run").summary or {})["notes"] == [left, unused]

    settings = ["train.iterations=2", "control.policy=top-k", "control.send_ratio=0.5"]
    command = ["flexfl", "run", "quickstart", *(word for one in settings for word in ("--set", one))]
    monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path / "command")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SystemExit):
            main()
    printed = capsys.readouterr().out
    assert f"note: {left}" in printed
    assert "note: top-k does not use the budgets" in printed


def test_a_run_within_its_budgets_has_no_notes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simulate(budget={"uplink": 0.01}).summary["notes"] == []


# Policies of one's own ---------------------------------------------------------------------


class Own:
    """A policy with one rule of the test's own for sending."""

    def __init__(self, **methods: Any) -> None:
        self._methods = methods

    def compute_rule(self, scope: Any) -> Any:
        return FixedCompute()

    def send_rule(self, scope: Any) -> Any:
        everything = {"decide": lambda self, cost, choices, moment: choices.everything()}
        return type("Mine", (Rule,), everything | self._methods)()


def late(decide: Callable[[Any, Any], Any]) -> Own:
    """A rule that goes wrong in iteration 2, which no trial can foresee."""

    def method(self: Any, cost: Any, choices: Any, moment: Any) -> Any:
        return decide(choices, moment) if moment.iteration == 2 else choices.everything()

    return Own(decide=method)


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (lambda choices, moment: choices.above(None)[0], "neither a number nor an array of numbers"),
        (lambda choices, moment: choices.above("x")[0], "neither a number nor an array of numbers"),
        (lambda choices, moment: choices.above(np.ones(3))[0], "one entry for each entity"),
        (
            lambda choices, moment: np.arange(3)[moment.entities.numbers],
            "IndexError: index 3 is out of bounds",
        ),
        (lambda choices, moment: choices.nonsense(), "AttributeError"),
        (lambda choices, moment: [1, [2, 3]], "ValueError"),
    ],
)
def test_a_rule_that_fails_later_is_named_with_its_iteration(
    decide: Callable[[Any, Any], Any], words: str
) -> None:
    with pytest.raises(RuleError) as caught:
        simulate(control={"policy": late(decide)})
    message = str(caught.value)
    assert message.startswith("Mine failed for uplink in iteration 2 (")
    assert words in message
    assert "correct its method decide" in message
    assert "\n" not in message
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("cut", [None, "x", np.zeros(3), np.array([None] * 4)])
def test_a_threshold_that_is_no_number_is_refused_before_any_work(tmp_path: Path, cut: Any) -> None:
    message = refused(tmp_path, control={"policy": Own(cut=lambda self, cost: cut)})
    assert "Mine failed for uplink in iteration 0" in message
    assert "correct its method cut" in message


class Returning(Own):
    def __init__(self, rule: Any) -> None:
        self._rule = rule

    def send_rule(self, scope: Any) -> Any:
        return self._rule


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Returning(None), "send_rule returned None without decide"),
        (Returning(SendAll), "send_rule returned the class SendAll, not an object of it"),
        (Own(state=lambda self: {"a": np.ones(2)}), "Mine has state, but a memory needs state and restore"),
        (
            Own(state=lambda self: {"a": "text"}, restore=lambda self, state: None),
            "rule.a of its state is an array of <U4",
        ),
        (Own, "got 'the class Own'; give an object of it: Own(…)"),
    ],
)
def test_a_policy_that_is_not_made_as_it_must_be(tmp_path: Path, policy: Any, words: str) -> None:
    assert words in refused(tmp_path, control={"policy": policy})


# Further mistakes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": nn.Linear}, "model must be an nn.Module, got 'the class Linear'; give an object of it"),
        ({"spec": nn.Linear(6, 3)}, "write model=…"),
        ({"data": (1, 2)}, "got 'tuple'; make one with Federated.split"),
        ({"loss": nn.CrossEntropyLoss}, "give an object of it: CrossEntropyLoss()"),
        ({"loss": "cross_entropy"}, "loss must be a function, got 'cross_entropy'"),
        ({"observers": flexfl.Observer()}, "observers must be a list of observers, got 'Observer'"),
        ({"out": 5}, "out must be the path of a folder, got 5"),
        ({"costs": {"uplink": lambda k: k}}, "an object with the methods of a cost of sending"),
        ({"control": {"policy": object()}}, "an object with the methods of a policy"),
        ({"control": {"uplink": {"policy": Own()}}}, "control.uplink.policy must name a policy: objects are"),
        ({"budget": {"uplink": {0: 0.1}}}, "a list gives one number for each client"),
        ({"data.clients": 5}, "write data={'clients': 5}"),
        ({"train": {"iterations": 3.0}}, "got 3.0; write 3"),
    ],
)
def test_arguments_of_another_kind(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        simulate(**given)
    assert words in str(caught.value)


def test_numbers_of_torch_are_numbers() -> None:
    result = simulate(budget={"uplink": torch.tensor(0.125), "compute": torch.full((4,), 0.25)})
    assert result.run.budget("uplink") == 0.125
    assert result.run.budget("compute") == 0.25
