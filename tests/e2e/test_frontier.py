"""A frontier from the command line: killed and resumed, with a cell that fails, and with wrong words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from flexfl.results.run import Run
from stopping import FLEXFL, stopped_once

pytestmark = pytest.mark.xdist_group("run_many")  # they start processes of their own

SMALL = [
    "--set",
    "data.clients=10",
    "--set",
    "train.evaluate_every=30",
    "--set",
    "engine.checkpoint_every=10",
]


def flexfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLEXFL, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.sqlite")}


@pytest.mark.slow
def test_killed_in_the_middle_it_ends_with_the_same_numbers(tmp_path: Path) -> None:
    command = ["frontier", "quickstart", "--vary", "budget.uplink=0.5,2.0", "--vary", "budget.downlink=9.0"]
    command += [*SMALL, "--set", "train.iterations=120", "--jobs", "1", "--target", "0.3"]
    first, second = (f"uplink={value}-downlink=9/seed-1" for value in ("0.5", "2"))
    for way in (signal.SIGINT, signal.SIGKILL):
        code, error = stopped_once(
            tmp_path / "cut" / (first if way == signal.SIGINT else second) / "spec.toml",
            [*command, "--out", "cut"],
            cwd=tmp_path,
            stop=lambda process, way=way: os.killpg(process.pid, way),  # type: ignore[misc]
        )
        if way == signal.SIGINT:
            assert code == 130
            assert "resume with: flexfl frontier quickstart --vary budget.uplink=0.5,2.0 --vary" in error
        assert not (tmp_path / "cut/frontier").exists()
    finished = {path: time for path, time in stamps(tmp_path / "cut").items() if first in str(path)}
    done = flexfl(*command, "--out", "cut", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs are finished already" in done.stdout
    assert finished == {path: time for path, time in stamps(tmp_path / "cut").items() if first in str(path)}
    before = stamps(tmp_path)
    whole = flexfl(*command, "--out", "whole", "--json", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert json.loads(whole.stdout) == json.loads((tmp_path / "cut/frontier/frontier.json").read_text())
    for folder in (first, second):
        one, other = Run(tmp_path / "cut" / folder), Run(tmp_path / "whole" / folder)
        np.testing.assert_array_equal(
            one.iterations["uplink_bytes_mean"], other.iterations["uplink_bytes_mean"]
        )
    again = flexfl(*command, "--out", "cut", "--seeds", "1", cwd=tmp_path)  # nothing left to compute
    assert again.returncode == 0
    assert before == {path: time for path, time in stamps(tmp_path).items() if "cut" in path.parts}


@pytest.mark.slow
def test_a_cell_that_fails_is_listed_and_the_others_are_shown(tmp_path: Path) -> None:
    command = ["frontier", "quickstart", "--vary", "train.learning_rate=0.1,1e30", *SMALL]
    done = flexfl(*command, "--set", "train.iterations=6", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "flexfl: learning_rate=1e+30, seed 1 failed: the gradient of client" in done.stderr
    assert "Traceback" not in done.stderr
    assert "files          runs/frontier/quickstart/frontier" in done.stdout
    data = json.loads((tmp_path / "runs/frontier/quickstart/frontier/frontier.json").read_text())
    assert [cell["accuracy"] is None for cell in data["cells"]] == [False, True]


def test_a_mistake_is_one_error_and_no_work(tmp_path: Path) -> None:
    done = flexfl("frontier", "quickstart", "--vary", "budget.uplnk=0.1,0.2", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "flexfl: 1 fault in the command:",
        "  budget.uplnk is not a key here, got 0.1; did you mean uplink?",
    ]
    assert not list(tmp_path.iterdir())
