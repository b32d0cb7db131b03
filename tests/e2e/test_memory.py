"""More clients than fit in memory: residuals in a file, within a limit, with the same numbers.

`make large` runs it with 10,000 clients of the paper's network and a limit of 1 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

LARGE = "FLEXFL_LARGE" in os.environ
CLIENTS = 10_000 if LARGE else 2_500
PARAMETERS = 39_760
TRAIN = """
import sys
import numpy as np
from flexfl import Federated, simulate

clients, iterations, kind, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
rng = np.random.default_rng(0)
x, y = rng.standard_normal((2 * clients, 28, 28), dtype=np.float32), rng.integers(0, 10, 2 * clients)
data = Federated.split((x, y), clients=clients)
simulate(
    "fashion",
    data=data,
    train={"iterations": iterations, "batch_size": 2, "evaluate_every": 100},
    engine={"residuals": kind, "checkpoint_every": 3, "threads": 1},
    out=out,
    resume=True,
)
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak) * 1024)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory was used")


def train(iterations: int, kind: str, out: Path) -> int:
    command = [sys.executable, "-c", TRAIN, str(CLIENTS), str(iterations), kind, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200)
    return int(done.stdout)


@pytest.mark.slow
def test_residuals_in_a_file_stay_out_of_memory(tmp_path: Path) -> None:
    in_file = [train(4, "file", tmp_path / "file"), train(7, "file", tmp_path / "file")]
    in_memory = train(7, "memory", tmp_path / "memory")
    for peak in in_file:  # when it starts, and when it reads the checkpoint
        assert peak < 1e9
        assert peak < in_memory - 0.4 * 4 * CLIENTS * PARAMETERS
    states = [load_file(next((tmp_path / kind).glob("checkpoint-*"))) for kind in ("file", "memory")]
    for name in set(states[0]) - {"seconds"}:
        assert np.array_equal(states[0][name], states[1][name]), name
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []  # nothing is left beside
