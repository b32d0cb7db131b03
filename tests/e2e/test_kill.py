"""kill -9 at random moments: the run goes on, bit for bit, without gap or double row."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import flexfl
from flexfl.results.run import Run
from flexfl.spec import load_spec

SETTINGS = [
    "train.iterations=60",
    "train.evaluate_every=7",
    "engine.checkpoint_every=9",
    "engine.threads=1",
    "record.clients=true",
    "data.clients=20",
]

# Dies by its own hand, in a thread, some milliseconds after a given iteration: in the middle of
# an iteration, of an evaluation or of the writing of a checkpoint, as it happens.
VICTIM = """
import os, signal, sys, threading, time
import flexfl
from flexfl.spec import load_spec

out, at, delay, *settings = sys.argv[1:]
reached = threading.Event()

def die():
    reached.wait()
    time.sleep(float(delay))
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()

class Note(flexfl.Observer):
    def iteration(self, progress, record):
        if progress.iteration >= int(at):
            reached.set()

flexfl.simulate(load_spec("quickstart", settings), out=out, resume=True, observers=[Note()])
"""


def final_state(directory: Path) -> dict[str, np.ndarray]:
    (checkpoint,) = directory.glob("checkpoint-*")
    state = load_file(checkpoint)
    del state["seconds"]
    return state


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    flexfl.simulate(load_spec("quickstart", SETTINGS), out=out)
    return out


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_resumed_run_equals_an_uninterrupted_one(uninterrupted, tmp_path, seed):
    chance = random.Random(seed)
    out = tmp_path / "run"
    kills = sorted(chance.sample(range(1, 55), 2))
    for at in kills:
        command = [sys.executable, "-c", VICTIM, str(out), str(at), str(chance.uniform(0, 0.1)), *SETTINGS]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    result = flexfl.simulate(load_spec("quickstart", SETTINGS), out=out, resume=True)

    expected, found = final_state(uninterrupted), final_state(out)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        assert np.array_equal(array, found[name]), name
    assert np.array_equal(result.params, expected["params"])

    whole, resumed = Run(uninterrupted), Run(out)
    assert resumed.iterations["iteration"].tolist() == list(range(60))
    assert resumed.evaluations["iteration"].tolist() == [*range(0, 60, 7), 60]
    for mine, theirs in (
        (resumed.iterations, whole.iterations),
        (resumed.evaluations, whole.evaluations),
        (resumed.clients, whole.clients),
    ):
        for name in mine.keys() - {"seconds"}:
            np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)
    assert not list(out.glob("*.partial"))
