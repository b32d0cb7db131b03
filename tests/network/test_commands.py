"""The commands of a federation on real machines, here all on this one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flexfl.results import Run

FLEXFL = str(Path(sys.executable).with_name("flexfl"))
SPEC = """
[data]
clients = 2
partition = "iid"

[train]
iterations = 60
evaluate_every = 20

[budget]
uplink = 0.02

[engine]
dtype = "float64"

[deploy]
wait = 30.0
"""


def flexfl(*arguments: str, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [FLEXFL, "deploy", *arguments], cwd=cwd, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server and two clients that were started by hand; north has data of its own."""
    folder = tmp_path_factory.mktemp("clinics")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "clinics.toml").write_text(
        f'name = "clinics"\nserver = "localhost"\nport = {port}\nclients = {{north = 3, south = 1}}\n'
        'heartbeat = "2 s"\n'
    )
    (folder / "spec.toml").write_text(SPEC)
    rng = np.random.default_rng(0)
    np.savez(folder / "own.npz", train_x=rng.integers(0, 255, (64, 28, 28)), train_y=np.arange(64) % 10)
    output = flexfl("provision", "clinics.toml", cwd=folder)
    assert "created server, admin, north, south" in output
    assert "all kits exist already" in flexfl("provision", "clinics.toml", cwd=folder)
    commands = {
        "server": ["server", "kits/server"],
        "north": ["client", "kits/north", "--data", "own.npz", "--threads", "1"],
        "south": ["client", "kits/south", "--threads", "1"],
    }
    running = {
        name: subprocess.Popen(
            [FLEXFL, "deploy", *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, command in commands.items()
    }
    try:
        _wait_for(folder, "south: connected")
        yield folder
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for name, process in running.items():
            output, _ = process.communicate(timeout=60)
            assert process.returncode == 0, (name, output)
            assert "stopped" in output


def _wait_for(folder: Path, words: str) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        done = subprocess.run(
            [FLEXFL, "deploy", "status", "kits/admin"], cwd=folder, capture_output=True, text=True
        )
        if words in done.stdout:
            return
        time.sleep(0.5)
    raise AssertionError(f"{words!r} did not come: {done.stdout}{done.stderr}")


def test_submit_status_resume_stop(place: Path) -> None:
    output = flexfl("submit", "kits/admin", "spec.toml", cwd=place)
    assert "spec: finished, iteration 60 of 60" in output
    run = Run(place / "kits/server/flexfl/spec")
    assert run.summary is not None
    assert run.summary["clients"] == 2
    status = flexfl("status", "kits/admin", cwd=place)
    assert "north: connected" in status
    assert "spec: finished" in status

    again = flexfl("submit", "kits/admin", "spec.toml", cwd=place, code=2)
    assert "the server has a run spec already (60 iterations); --resume continues it" in again
    longer = ["submit", "kits/admin", "spec.toml", "--resume", "--set", "train.iterations=80"]
    assert "spec: finished, iteration 80 of 80" in flexfl(*longer, cwd=place)

    endless = ["--name", "endless", "--set", "train.iterations=100000", "--no-watch"]
    flexfl("submit", "kits/admin", "spec.toml", *endless, cwd=place)
    _wait_for(place, "endless: training")
    busy = flexfl("submit", "kits/admin", "spec.toml", "--name", "other", cwd=place, code=2)
    assert "endless is still running; stop it first" in busy
    assert "endless is stopping" in flexfl("stop", "kits/admin", cwd=place)
    _wait_for(place, "endless: stopped")
    assert Run(place / "kits/server/flexfl/endless").summary is None


def test_what_is_wrong_is_said_before_anything_starts(place: Path) -> None:
    admin = "kits/admin"
    shared = "budget.uplink={shared=[{clients=[0,9],limit=0.1}]}"
    assert "may name clients" in flexfl("submit", admin, "spec.toml", "--set", shared, cwd=place, code=2)
    assert "must be letters" in flexfl("submit", admin, "spec.toml", "--name", "a b", cwd=place, code=2)
    assert "is not the kit of a client but of the server" in flexfl(
        "client", "kits/server", cwd=place, code=2
    )
    assert "is not the kit of a server but of the client north" in flexfl(
        "server", "kits/north", cwd=place, code=2
    )
    assert "must be one of north, south" in flexfl("remove", admin, "nobody", cwd=place, code=2)
    assert "must be one of server, admin, north" in flexfl("rotate", "clinics.toml", "x", cwd=place, code=2)
    assert "must be a TOML file" in flexfl("provision", "absent.toml", cwd=place, code=2)
    for command in (["status"], ["stop"], ["submit"], ["remove"], ["admit"]):
        more = {"submit": ["spec.toml"], "remove": ["north"], "admit": ["north"]}.get(command[0], [])
        refused = flexfl(*command, "kits/north", *more, cwd=place, code=2)
        assert "kits/north is not the kit of an admin but of the client north" in refused
    assert "must be an .npz file" in flexfl("client", "kits/south", "--data", "no.npz", cwd=place, code=2)
    assert "there is no run" in flexfl(
        "submit", admin, "spec.toml", "--name", "new", "--resume", cwd=place, code=2
    )


def test_a_rotated_client_comes_back(place: Path) -> None:
    before = (place / "kits/south/startup/client.crt").read_bytes()
    assert "restart it" in flexfl("rotate", "clinics.toml", "south", cwd=place)
    assert (place / "kits/south/startup/client.crt").read_bytes() != before
