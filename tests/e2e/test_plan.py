"""flexfl plan: the page, the data and the pictures of a small spec, of a run, and of what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from flexfl import simulate
from flexfl.cli.main import app
from flexfl.errors import InputError
from flexfl.report.bounds import constants_of, read_plan, run_terms
from flexfl.results import Run
from flexfl.theory import convergence_bound

SMALL = {
    "data.clients": 3,
    "data.partition": "iid",
    "model.options.hidden": 2,
    "control.policy": "online",
    "train.iterations": 40,
    "train.evaluate_every": 40,
    "engine.threads": 1,
}
SETTINGS = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]

TRIED = ["--iterations-to-try", "10", "--pace", "2 min"]


def plan(*words: str, columns: int = 80):
    environment = {"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, ["plan", *words], env=environment)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The folder and the page of a small plan."""
    folder = tmp_path_factory.mktemp("plan")
    ended = plan("quickstart", *SETTINGS, *TRIED, "--out", str(folder))
    assert ended.exit_code == 0, ended.output
    return folder, ended.output


def test_the_page_its_data_and_its_picture(page):
    folder, text = page
    for words in (
        "3 clients",
        "of budget",
        "OPT_q",
        "1/(4Lp)",
        "above the budget after 40 iterations",
        "W for 1 %",
        "90 % interval",
        "kept back by clients",
        "720 iterations a day",
    ):
        assert words in text, words
    lines = [line for line in text.splitlines() if not line.startswith(("picture", "data", "real pace"))]
    assert max(map(len, lines)) <= 80
    found = read_plan(folder / "plan.json")
    assert (found["iterations"], found["trial"]) == (40, 10)
    height, width, _ = imread(folder / "plan.png").shape
    assert width > 2 * height > 800


def test_json_alone_on_standard_output_and_the_same_again(page, tmp_path):
    ended = plan("quickstart", *SETTINGS, *TRIED, "--json", "--out", str(tmp_path))
    assert ended.exit_code == 0, ended.output
    first, again = read_plan(page[0] / "plan.json"), json.loads(ended.stdout)
    assert again == read_plan(tmp_path / "plan.json")
    assert min(found["pace"].pop("simulated") for found in (first, again)) > 0
    assert first == again


def test_without_a_trial_the_page_says_what_is_not_known(tmp_path):
    ended = plan("quickstart", *SETTINGS, "--iterations-to-try", "0", "--out", str(tmp_path))
    assert ended.exit_code == 0, ended.output
    assert "without a trial nothing is known of messages and residuals" in ended.output
    found = read_plan(tmp_path / "plan.json")
    assert list(found["violations"]) == ["compute"]
    assert found["convergence"]["client_residual"] is None
    assert found["spending"]["uplink"]["each"] is None
    assert (tmp_path / "plan.png").exists()


def test_theorem_1_is_drawn_for_a_finished_run(tmp_path):
    sections = {}
    for name, value in SMALL.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {}).update(
            {"options": {"hidden": value}} if "hidden" in key else {key: value}
        )
    simulate("quickstart", out=tmp_path / "run", **sections)
    ended = plan(str(tmp_path / "run"), "--iterations-to-try", "2")
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "run/plan/bound.png").exists()
    run, found = Run(tmp_path / "run"), read_plan(tmp_path / "run/plan/plan.json")
    terms, recorded = run_terms(run, constants_of(found), heaviest=2.0), run.iterations
    T = 40
    expected = convergence_bound(
        constants_of(found),
        learning_rate=0.1,
        iterations=T,
        server_residual=recorded["downlink_objective"][:-1].sum() / T,
        client_residual=4.0 * recorded["uplink_objective_mean"][:-1].sum() / T,
        inverse_prob=recorded["compute_objective_mean"].mean(),
    )
    for name, value in vars(expected).items():
        np.testing.assert_allclose(getattr(terms, name)[-1], value, rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quickstart", "--pace", "5 kg"], "--pace has the unit kg, which is not known"),
        (["quickstart", "--pace", "0 s"], "--pace must be > 0"),
        (["quickstart", "--set", "budget.uplnk=1"], "did you mean uplink"),
        (["nowhere"], "must be a spec that ships or a TOML file"),
        (["."], "must be a spec, or the folder of a run"),
        (["quickstart", "--set", "costs.compute={kind='measured'}"], "only available in deployments"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = plan(*words)
    assert isinstance(ended.exception, InputError)
    assert message in str(ended.exception)


def test_what_is_no_plan_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"must be a plan .*flexfl plan SPEC"):
        read_plan(tmp_path / "plan.json")
