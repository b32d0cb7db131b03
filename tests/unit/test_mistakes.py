"""Mistakes of a newcomer in files, overrides and data: the message names the place and the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flexfl.cli import as_command
from flexfl.data.datasets import load_pairs
from flexfl.data.federated import Federated
from flexfl.deploy.nvflare.kits import require
from flexfl.deploy.project import read_project
from flexfl.errors import FlexFLError, InputError, RunDirectoryError
from flexfl.experiments.sweep import load_sweep
from flexfl.report import write_report
from flexfl.results import Run
from flexfl.results.export import export_run
from flexfl.spec import load_spec, parse, to_toml
from runs import write_run


def message_of(given: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        parse(given)
    return str(caught.value)


# Files -------------------------------------------------------------------------------------

BROKEN = [
    ("[train\niterations = 5", "line 1, column 7 must be TOML", "got '[train'"),
    ("[budget]\nuplink = 0,01", "line 2, column 11 must be TOML", "use a point: 0.01"),
    ("[control]\npolicy = top-k", "line 2, column 10 must be TOML", 'in quotes: policy = "top-k"'),
    ("[record]\nclients = True", "line 2, column 11 must be TOML", "write clients = true"),
    ("[data]\npath = None", "line 2, column 8 must be TOML", "leave path out"),
    ("[train]\nlearning_rate = .1", "line 2, column 17 must be TOML", "write 0.1"),
    ("[train]\n\n\niterations 5", "line 4, column 12 must be TOML", "got 'iterations 5'"),
    ("[train]\nseed = [1, 2", "the end must be TOML", "got 'seed = [1, 2'"),
    ("", None, None),
]


@pytest.mark.parametrize(("text", "place", "remedy"), BROKEN)
def test_broken_toml_shows_the_line(tmp_path: Path, text: str, place: str | None, remedy: str | None) -> None:
    file = tmp_path / "a-folder-with-a-long-name-so-that-the-position-would-be-cut-off.toml"
    file.write_text(text, encoding="utf-8")
    if place is None or remedy is None:
        assert load_spec(str(file)) == parse({})
        return
    for load in (lambda: load_spec(str(file)), lambda: load_sweep(file), lambda: read_project(file)):
        with pytest.raises(InputError) as caught:
            load()
        assert caught.value.where == str(file)
        assert place in str(caught.value)
        assert remedy in str(caught.value)


def test_a_path_is_relative_to_the_file_that_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = tmp_path / "specs", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    (here / "mine.toml").write_text('[data]\nname = "file"\npath = "mine.npz"\n', encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    spec = load_spec("../specs/mine.toml")
    assert Path(str(spec.data.path)).resolve() == (here / "mine.npz").resolve()
    assert Path(str(spec.data.path)).is_absolute()

    (elsewhere / "stored.toml").write_text(to_toml(spec), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_spec("elsewhere/stored.toml") == spec

    # What is typed, or passed in Python, is relative to where that is done.
    typed = load_spec("specs/mine.toml", ["data.path=typed.npz"])
    passed = parse({"data": {"name": "file", "path": "typed.npz"}})
    assert typed.data.path == passed.data.path == str(tmp_path / "typed.npz")


def test_paths_in_a_sweep_are_relative_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in" / "bases").mkdir(parents=True)
    base = '[data]\nname = "file"\npath = "base.npz"\n'
    (tmp_path / "in" / "bases" / "base.toml").write_text(base, encoding="utf-8")
    sweep = tmp_path / "in" / "sweep.toml"
    variants = '[[variant]]\nname = "a"\n[[variant]]\nname = "b"\nset.data.path = "b.npz"\n'
    sweep.write_text(f'base = "bases/base.toml"\n{variants}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    first, second = load_sweep(Path("in/sweep.toml")).cells(Path("out"))
    assert first.spec.data.path == str(tmp_path / "in" / "bases" / "base.npz")
    assert second.spec.data.path == str(tmp_path / "in" / "b.npz")

    sweep.write_text('set.data.name = "file"\n[grid]\ndata.path = ["c.npz", "d.npz"]\n', encoding="utf-8")
    cells = load_sweep(Path("in/sweep.toml")).cells(Path("out"))
    assert [cell.spec.data.path for cell in cells] == [str(tmp_path / "in" / f"{name}.npz") for name in "cd"]
    assert [cell.out.parent.name for cell in cells] == ["path=c.npz", "path=d.npz"]


# Settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("budget.uplink=0,01", "budget.uplink must be > 0, got '0,01'; use a point: 0.01"),
        ("budget.uplink=0.1,0.2", "write a list: [0.1,0.2]"),
        ("budget.uplink=1%", "write 0.01"),
        ("train.learning_rate=.5", "write 0.5"),
        ('train.iterations="500"', "write 500, without quotes"),
        ("train.lr=0.1", "did you mean learning_rate?"),
        ("train.epochs=3", "did you mean iterations?"),
        ("train.bs=3", "did you mean batch_size?"),
        ("control.V=3", "did you mean tradeoff?"),
        ("budget.upload=3", "did you mean uplink?"),
        ("engine.gpu=true", "did you mean device?"),
        ("train.clients=3", "did you mean data.clients?"),
        ("train.num_clients=3", "did you mean data.clients?"),
        ("data.iterations=3", "did you mean train.iterations?"),
        ("control.learning_rate=3", "did you mean train.learning_rate?"),
        ("iterations=5", "write --set train.iterations=5"),
        ("lr=5", "write --set train.learning_rate=5"),
        ("nonsense=5", "for example --set train.iterations=500"),
    ],
)
def test_an_override_that_is_nearly_right(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec("fashion", [override])
    assert words in str(caught.value)


def test_a_setting_above_the_first_section() -> None:
    assert "iterations is not a section of a spec, got 5; write train.iterations" in message_of(
        {"iterations": 5}
    )


# Policies of one knob ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "table"),
    [
        ("downlink", {"policy": "periodic", "send_every": 2}),
        ("compute", {"policy": "periodic", "send_every": 2}),
        ("compute", {"policy": "top-k", "send_ratio": 0.1}),
        ("uplink", {"policy": "fixed-prob", "compute_prob": 0.5}),
        ("downlink", {"policy": "fixed-prob", "compute_prob": 0.5}),
    ],
)
def test_a_policy_that_does_not_decide_for_its_knob(knob: str, table: dict[str, Any]) -> None:
    message = message_of({"control": {knob: table}})
    assert f"control.{knob}.policy must decide for {knob}, which {table['policy']} does not" in message
    assert "write full for" in message


@pytest.mark.parametrize("policy", ["online", "full"])
@pytest.mark.parametrize("knob", ["compute", "uplink", "downlink"])
def test_a_policy_for_every_knob(policy: str, knob: str) -> None:
    assert parse({"control": {knob: {"policy": policy}}}).notes() == []


def test_notes_say_what_a_policy_leaves_alone() -> None:
    """A comparison of policies under one [budget] still works; what is not used is said."""
    budget = {"compute": 0.25, "uplink": 0.01, "downlink": 0.01}
    top_k = {"policy": "top-k", "send_ratio": 0.01}
    assert parse({"control": top_k}).notes() == [
        "top-k does not decide for compute: every client computes in every iteration"
    ]
    assert parse({"control": top_k, "budget": budget}).notes()[1:] == [
        "top-k does not use the budgets: reports show them beside what is spent"
    ]
    assert parse({"control": {"policy": "full"}, "budget": {"uplink": 0.1}}).notes() == [
        "full does not use budget.uplink: reports show it beside what is spent"
    ]
    mixed = {"policy": "online", "uplink": top_k, "downlink": {"policy": "full"}}
    assert parse({"control": mixed, "budget": budget}).notes() == [
        "top-k does not use budget.uplink: reports show it beside what is spent",
        "full does not use budget.downlink: reports show it beside what is spent",
    ]
    assert parse({"control": {"policy": "fixed-prob", "compute_prob": 0.5}}).notes() == [
        "fixed-prob does not decide for uplink: clients send everything in every iteration",
        "fixed-prob does not decide for downlink: the server sends everything in every iteration",
    ]
    for policy in ({"policy": "online"}, {"policy": "randomised", "send_ratio": 0.1}):
        assert parse({"control": policy, "budget": budget}).notes() == []
    assert parse({"control": {"policy": "full"}, "budget": {"uplink": float("inf")}}).notes() == []


# Data --------------------------------------------------------------------------------------

X, Y = np.zeros((6, 2), dtype=np.float32), np.array([0, 1, 2, 0, 1, 2])


def refused(y: Any = Y, test_y: Any = None, clients: Any = 2, x: Any = X) -> str:
    test = None if test_y is None else (x, test_y)
    with pytest.raises(InputError) as caught:
        Federated.split((x, y), test, clients=clients)
    return str(caught.value)


def test_labels_that_cannot_be_trained_on() -> None:
    assert "data (labels) must be classes from 0 on, got -1" in refused(Y - 1)
    assert "data (test labels) must be classes from 0 on, got -1" in refused(test_y=Y - 1)
    nan = Y.astype(float)
    nan[3] = np.nan
    assert "data (labels) must be finite, got 'nan in sample 3'" in refused(nan)
    assert "data (test labels) must be finite" in refused(Y.astype(float), nan)
    assert "must be whole numbers (classes), as in training (torch.int64)" in refused(test_y=Y.astype(float))
    assert "convert them: y.long()" in refused(test_y=Y.astype(float))
    assert "must be numbers, as in training (torch.float64)" in refused(Y.astype(float), Y)
    assert "must have the shape () for each sample" in refused(test_y=Y[:, None])


def test_labels_of_single_clients() -> None:
    with pytest.raises(InputError) as caught:
        Federated.of_clients([(X, Y), (X, Y - 1), (X, Y.astype(float)), (X, np.full(6, -2))])
    message = str(caught.value)
    assert message.startswith("3 faults")
    assert "data (labels of client 1) must be classes from 0 on, got -1" in message
    assert "data of client 2 must have labels of torch.int64 like client 0, got 'torch.float64'" in message
    assert "data (labels of client 3) must be classes from 0 on, got -2" in message


@pytest.mark.parametrize(
    ("clients", "remedy"), [("5", "write 5, without quotes"), (2.0, "write 2"), (True, "N")]
)
def test_clients_are_a_whole_number(clients: Any, remedy: str) -> None:
    message = refused(clients=clients)
    assert f"data.clients must be a whole number ≥ 1, got {clients!r}" in message
    assert remedy in message


def test_a_number_of_numpy_is_a_number_of_clients() -> None:
    assert Federated.split((X, torch.as_tensor(Y)), clients=np.int64(3)).clients == 3  # type: ignore[arg-type]


# Results -----------------------------------------------------------------------------------


def test_a_report_takes_a_folder_of_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "a" / "seed-1", seed=1)
    write_run(runs / "a" / "seed-2", seed=2)
    write_run(runs / "b", control={"policy": "full"})
    page = write_report([runs], tmp_path / "out").read_text(encoding="utf-8")
    assert "2 seeds" in page
    assert "control.policy=full" in page
    with pytest.raises(RunDirectoryError, match=r"holds no run itself.*a/seed-1.*a/seed-2"):
        export_run(runs, tmp_path / "out", "csv")


def test_folders_without_a_run_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="there is no such folder"):
        write_report([tmp_path / "absent"], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirectoryError, match=r"holds no run \(spec.toml is missing\)"):
        write_report([tmp_path / "empty"], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="it is a file"):
        Run(tmp_path / "file")
    assert not (tmp_path / "out").exists()


def test_a_report_shows_the_notes_of_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    (run / "summary.json").write_text(json.dumps(summary | {"notes": ["full does not use budget.uplink"]}))
    page = write_report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert "full does not use budget.uplink" in page


def test_the_command_line_translates_arguments() -> None:
    python = "a already holds a run; add resume=True to continue it, or choose another out=…"
    assert as_command(python) == "a already holds a run; add --resume to continue it, or choose another --out"


# Kits --------------------------------------------------------------------------------------


def test_a_kit_of_somebody_else_is_named(tmp_path: Path) -> None:
    for kit, kind in (("admin", "admin"), ("server", "server"), ("site-7", "client")):
        startup = tmp_path / kit / "startup"
        startup.mkdir(parents=True)
        (startup / f"fed_{kind}.json").write_text(json.dumps({"client": {"fqsn": "north"}}))
        require(tmp_path / kit, kind)

    def message(kit: str, kind: str) -> str:
        with pytest.raises(FlexFLError) as caught:
            require(tmp_path / kit, kind)
        return str(caught.value).replace(f"{tmp_path}/", "")

    wrong = (
        "site-7 is not the kit of an admin but of the client north; name an admin's kit, for example admin"
    )
    assert message("site-7", "admin") == wrong
    assert (
        message("admin", "client") == "admin is not the kit of a client but of the admin; name a client's kit"
    )
    assert "but of the server" in message("server", "admin")
    assert "did you mean admin?" in message("", "admin")
    assert "nowhere is not a folder" in message("nowhere", "server")


# Further mistakes --------------------------------------------------------------------------


def test_data_that_are_no_numbers() -> None:
    text = refused(np.array(["cat", "dog"] * 3))
    assert (
        "data (train) must have labels that are numbers (can't convert np.ndarray of type numpy.str_)" in text
    )
    assert "number the classes" in text
    assert "must have features that are numbers" in refused(x=[[1, 2], [3]], y=[0, 1])


def test_clients_as_a_table_or_a_single_pair() -> None:
    with pytest.raises(InputError, match=r"got 'dict'; give list\(clients.values\(\)\)"):
        Federated.of_clients({"north": (X, Y)})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"give a list of pairs, \[\(x, y\), …\]"):
        Federated.of_clients((X, Y))


def test_features_that_a_graph_made_are_taken_without_it() -> None:
    made = torch.as_tensor(X).requires_grad_() * 2
    assert not Federated.split((made, Y), clients=2).train_x.requires_grad


def test_a_file_of_data_that_is_absent_or_another(tmp_path: Path) -> None:
    absent = tmp_path / "in-a-folder-whose-name-is-so-long-that-it-might-be-cut-off" / "absent.npz"
    with pytest.raises(InputError, match=r"must name a file that exists, got '.*/absent\.npz'"):
        load_pairs("file", absent)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_pairs("file", tmp_path / "table.csv")
    assert "it is another kind of file" in str(caught.value)
    assert "numpy.savez(path, train_x=…, train_y=…" in str(caught.value)
    assert "pickle" not in str(caught.value)


def test_settings_of_a_network_are_options() -> None:
    assert "write model.options.hidden" in message_of({"model": {"name": "mlp", "hidden": 5}})


def test_a_spec_in_the_place_of_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text("[train]\niterations = 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"write set.train for all cells; or is it a spec, for flexfl run\?"):
        load_sweep(file)
