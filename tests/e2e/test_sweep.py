"""Sweeps and the paper's figures from the command line: nothing twice, nothing lost, none stops another."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from flexfl.results.run import Run
from stopping import FLEXFL, stopped_once

pytestmark = pytest.mark.xdist_group("several")  # they start processes of their own

SWEEP = """
base = "quickstart"
seeds = [1]
set.data.clients = 10
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
    assert "2 of 3 runs are there already" in again.stdout
    assert "belongs to another spec" in again.stderr
    assert "train.learning_rate" in again.stderr
    assert times == {path: time for path, time in stamps(tmp_path).items() if path.parent in good}
    file.write_text(SWEEP.replace("iterations = 6", "iterations = 9").replace("1e30", "0.2"))
    longer = flexfl("sweep", "trial.toml", "--out", "runs/trial", "--json", cwd=tmp_path)
    assert longer.returncode == 2
    told = json.loads(longer.stdout)
    assert [told[f"{name}, seed 1"]["iterations"] for name in ("flat", "greedy")] == [9, 9]


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
            assert "go on with: flexfl paper fig1" in error
        assert not (tmp_path / "cut/figures").exists()
    done = flexfl(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Proposed" in done.stdout
    for name in ("fig1.csv", "fig1-curves.csv"):
        assert table(tmp_path / "cut/figures" / name) == table(whole / "figures" / name)
    one, other = Run(tmp_path / "cut/kr-0.01/seed-1"), Run(whole / "kr-0.01/seed-1")
    for name, column in one.iterations.items():
        np.testing.assert_array_equal(column, other.iterations[name])


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
