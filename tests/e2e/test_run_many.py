"""Many runs at once: the same results as one by one, and a failed run does not stop the others."""

from __future__ import annotations

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

SMALL = ["--set", "data.clients=10", "--set", "train.iterations=6", "--set", "train.evaluate_every=3"]
pytestmark = pytest.mark.xdist_group("run_many")  # they start processes of their own


def flexfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLEXFL, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


def test_seeds_side_by_side_are_the_seeds_alone(tmp_path: Path) -> None:
    done = flexfl("run", "quickstart", *SMALL, "--seeds", "1,3", "--jobs", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summaries = json.loads(done.stdout)
    assert set(summaries) == {"quickstart, seed 1", "quickstart, seed 3"}
    for seed in (1, 3):
        run = Run(tmp_path / "runs" / "quickstart" / f"seed-{seed}")
        # No more threads in all than there are cores.
        threads = run.spec["engine"]["threads"]
        assert threads == max(1, (os.cpu_count() or 1) // 2)
        alone = [
            "--set",
            f"train.seed={seed}",
            "--set",
            f"engine.threads={threads}",
            "--out",
            f"alone-{seed}",
        ]
        assert flexfl("run", "quickstart", *SMALL, *alone, "-q", cwd=tmp_path).returncode == 0
        other = Run(tmp_path / f"alone-{seed}")
        for name, column in other.iterations.items():
            np.testing.assert_array_equal(run.iterations[name], column)
        assert summaries[f"quickstart, seed {seed}"]["test_accuracy"] == other.summary["test_accuracy"]


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    for name, rate in (("steep", 1e30), ("flat", 0.1)):
        text = f'data = {{ name = "fashion-mini", clients = 10 }}\ntrain = {{ learning_rate = {rate} }}\n'
        (tmp_path / f"{name}.toml").write_text(text)
    done = flexfl("run", "steep.toml", "flat.toml", *SMALL, "--jobs", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"flexfl: steep, seed 1 failed: the gradient of client \d+", done.stderr)
    assert "Traceback" not in done.stderr
    assert Run(tmp_path / "runs" / "flat" / "seed-1").summary is not None
    assert re.search(r"flat, seed 1 +│ +0\.\d+", done.stdout)
    assert re.search(r"steep, seed 1 +│ +failed", done.stdout)


STOPS = {
    "SIGTERM": lambda pid: os.kill(pid, signal.SIGTERM),
    "Ctrl-C": lambda pid: os.killpg(pid, signal.SIGINT),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", STOPS)
def test_stopped_all_and_resumed_all(way: str, tmp_path: Path) -> None:
    """SIGTERM reaches the parent only, Ctrl-C the whole group."""
    command = ["run", "quickstart", "--set", "train.iterations=100", "--seeds", "1-2", "--jobs", "2"]
    code, errors = stopped_once(
        tmp_path / "runs" / "quickstart" / "seed-1" / "spec.toml",
        command,
        cwd=tmp_path,
        stop=lambda process: STOPS[way](process.pid),
    )
    assert code == 130, errors
    assert "Traceback" not in errors
    assert "failed" not in errors
    hint = re.search(r"resume with: flexfl (.*)", errors)
    assert hint is not None
    # With another number of jobs: what has begun keeps its threads.
    resumed = flexfl(*hint[1].replace("--jobs 2", "--jobs 1").split(), cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    for seed in (1, 2):
        run = Run(tmp_path / "runs" / "quickstart" / f"seed-{seed}")
        assert run.summary is not None
        np.testing.assert_array_equal(run.iterations["iteration"], range(100))


@pytest.mark.parametrize("seeds", ["a", "3-1", "1,,x", "-2", "1-1000000000"])
def test_seeds_that_are_none(seeds: str, tmp_path: Path) -> None:
    done = flexfl("run", "quickstart", f"--seeds={seeds}", cwd=tmp_path)
    assert done.returncode == 2
    assert "--seeds must list whole numbers or ranges of them" in done.stderr
    assert list(tmp_path.iterdir()) == []
