"""Sweeps and the paper's figures from the command line: no run is repeated, lost, or stopped by another."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from flexfl.cli.run_many import run_many
from flexfl.experiments.paper import FIGURES, SETUPS, cells_of
from flexfl.results.run import Run
from stopping import FLEXFL, stopped_once

pytestmark = pytest.mark.xdist_group("run_many")  # they start processes of their own

SWEEP = """
base = "quickstart"
seeds = [1]
set.data.clients = 10
set.control.policy = "online"  # which does not plan for T: a longer run begins with a shorter one
set.train = { iterations = 6, evaluate_every = 3 }

[[variant]]
name = "flat"
[[variant]]
name = "steep"
set.train.learning_rate = 1e30
[[variant]]
name = "greedy"
set.control = { policy = "top-k", send_ratio = 0.1 }
"""


def flexfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLEXFL, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.sqlite")}


@pytest.mark.slow
def test_a_failure_is_listed_and_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text(SWEEP)
    done = flexfl("sweep", "trial.toml", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"flexfl: steep, seed 1 failed: the gradient of client \d+", done.stderr)
    assert "Traceback" not in done.stderr
    good = [tmp_path / "runs/trial" / name / "seed-1" for name in ("flat", "greedy")]
    before = {folder: Run(folder).summary for folder in good}
    assert None not in before.values()
    times = {path: time for path, time in stamps(tmp_path).items() if path.parent in good}
    file.write_text(SWEEP.replace("1e30", "0.2"))  # now it is another run
    again = flexfl("sweep", "trial.toml", cwd=tmp_path)
    assert "2 of 3 runs are finished already" in again.stdout
    assert "belongs to another run" in again.stderr
    assert "train.learning_rate" in again.stderr
    assert times == {path: time for path, time in stamps(tmp_path).items() if path.parent in good}
    file.write_text(SWEEP.replace("iterations = 6", "iterations = 9").replace("1e30", "0.2"))
    longer = flexfl("sweep", "trial.toml", "--out", "runs/trial", "--json", cwd=tmp_path)
    assert longer.returncode == 2
    summaries = json.loads(longer.stdout)
    assert [summaries[f"{name}, seed 1"]["iterations"] for name in ("flat", "greedy")] == [9, 9]


TWO_SEEDS = """
base = "quickstart"
seeds = "1-2"
set.data.clients = 10
set.control.policy = "online"
set.train = { iterations = 6, evaluate_every = 4 }

[[variant]]
name = "rate [/low]"  # not markup
"""


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "two.toml").write_text(TWO_SEEDS)
    done = flexfl("sweep", "two.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "rate [/low], seed 1" in done.stdout
    return folder


@pytest.fixture
def two_seeds(swept: Path, tmp_path: Path) -> list[Path]:
    """The run directories of a sweep that is done."""
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    return [tmp_path / "runs/two/rate-low" / f"seed-{seed}" for seed in (1, 2)]


def asked_for(iterations: int, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    text = TWO_SEEDS.replace("iterations = 6", f"iterations = {iterations}").replace("1-2", "1-3")
    (tmp_path / "two.toml").write_text(text)
    return flexfl("sweep", "two.toml", "--json", cwd=tmp_path)


@pytest.mark.slow
def test_a_part_of_a_run_is_taken_only_where_it_was_evaluated(two_seeds: list[Path], tmp_path: Path) -> None:
    summaries = json.loads(asked_for(4, tmp_path).stdout)
    assert {name: summary["iterations"] for name, summary in summaries.items()} == dict.fromkeys(summaries, 4)
    whole = Run(two_seeds[0])
    found = summaries["rate [/low], seed 1"]["test_accuracy"]
    assert found == whole.evaluations["test_accuracy"][whole.evaluations["iteration"] == 4]
    before = stamps(tmp_path)
    refused = asked_for(5, tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("or to a number at which the run was evaluated") == 2
    assert json.loads(refused.stdout)["rate [/low], seed 3"]["iterations"] == 5
    assert all(before[path] == stamps(tmp_path)[path] for path in before if path.parent in two_seeds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "reason"),
    [("spec.toml", "spec.toml cannot be read"), ("metrics.sqlite", "is not a run's metrics")],
)
def test_a_damaged_run_does_not_stop_the_others(
    two_seeds: list[Path], tmp_path: Path, file: str, reason: str
) -> None:
    for old in two_seeds[0].glob(f"{file}*"):
        old.unlink()
    (two_seeds[0] / file).write_text("not [ what it was" * 100)
    done = asked_for(6, tmp_path)
    assert done.returncode == 2
    assert re.search(rf"rate \[/low\], seed 1 failed: .*{reason}", done.stderr)
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert [found[f"rate [/low], seed {seed}"]["iterations"] for seed in (2, 3)] == [6, 6]


@pytest.mark.slow
def test_a_summary_that_was_cut_is_written_anew(two_seeds: list[Path], tmp_path: Path) -> None:
    before = Run(two_seeds[0]).summary
    (two_seeds[0] / "summary.json").write_text("")
    done = asked_for(6, tmp_path)
    assert done.returncode == 0, done.stderr
    after = Run(two_seeds[0]).summary
    assert before is not None
    assert after is not None
    assert before | {"seconds": 0} == after | {"seconds": 0}


PAPER = ["paper", "fig1", "--dataset", "mini", "--seeds", "1", "--iterations", "60", "--jobs", "2"]


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


@pytest.fixture(scope="session")  # test processes go to and fro between modules
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figure 1, undisturbed."""
    folder = tmp_path_factory.mktemp("paper")
    done = flexfl(*PAPER, "--out", "runs", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs"


@pytest.mark.slow
@pytest.mark.xdist_group("figure")
def test_a_figure_killed_in_the_middle_ends_with_the_same_numbers(whole: Path, tmp_path: Path) -> None:
    arguments = [*PAPER, "--out", "cut"]
    for way, reached in ((signal.SIGINT, "cut/kr-0.001/seed-1"), (signal.SIGKILL, "cut/kr-0.1/seed-1")):
        code, error = stopped_once(
            tmp_path / reached / "spec.toml",
            arguments,
            cwd=tmp_path,
            stop=lambda process, way=way: os.killpg(process.pid, way),  # type: ignore[misc]
        )
        if way == signal.SIGINT:
            assert code == 130
            assert "resume with: flexfl paper fig1" in error
        assert not (tmp_path / "cut/figures").exists()
    done = flexfl(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Proposed" in done.stdout
    for name in ("fig1.csv", "fig1-curves.csv"):
        assert table(tmp_path / "cut/figures" / name) == table(whole / "figures" / name)
    one, other = Run(tmp_path / "cut/kr-0.01/seed-1"), Run(whole / "kr-0.01/seed-1")
    for name, column in one.iterations.items():
        np.testing.assert_array_equal(column, other.iterations[name])


@pytest.mark.slow
@pytest.mark.xdist_group("figure")
def test_a_figure_of_fewer_iterations_is_a_view_of_the_same_runs(whole: Path, tmp_path: Path) -> None:
    before = stamps(whole)
    shorter = [*PAPER, "--iterations", "50", "--out", str(whole), "--results", "short"]
    done = flexfl(*shorter, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert stamps(whole) == before
    (row, *_) = table(tmp_path / "short/fig1.csv")
    assert row["iterations"] == "50"
    points = table(whole / "figures/fig1-curves.csv")
    assert table(tmp_path / "short/fig1-curves.csv") == [p for p in points if int(p["iteration"]) <= 50]


@pytest.mark.slow
@pytest.mark.xdist_group("figure")
def test_runs_of_other_settings_are_told_before_any_work(whole: Path, tmp_path: Path) -> None:
    done = flexfl(*PAPER, "--seeds", "2", "--evaluate-every", "20", "--out", str(whole), cwd=tmp_path)
    assert done.returncode == 2
    assert "train.evaluate_every is 50 there, got 20" in done.stderr
    assert "and 4 more do" in done.stderr
    assert not list(whole.glob("*/seed-2"))


@pytest.mark.slow
@pytest.mark.xdist_group("figure")
def test_what_is_finished_is_drawn_without_the_data(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path / "runs")
    cells = []
    for cell in cells_of([FIGURES["fig1"]], SETUPS["mini"], tmp_path / "runs", seeds=1, iterations=60):
        # As if it needed a dataset that is not stored.
        spec = cell.out / "spec.toml"
        spec.write_text(spec.read_text().replace("fashion-mini", "fashion-mnist"))
        data = cell.spec.data.model_copy(update={"name": "fashion-mnist"})
        cells.append(replace(cell, spec=cell.spec.model_copy(update={"data": data})))
    monkeypatch.setenv("FLEXFL_DATA", str(tmp_path / "data"))
    run_many(Console(quiet=True), cells, ["flexfl"], jobs=1)
    assert not (tmp_path / "data").exists()
