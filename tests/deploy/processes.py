"""Processes of a federation, to be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from flexfl.deploy.demo import Federation
from flexfl.deploy.plan import live_file
from flexfl.results.observer import Live


def job_process(parent: int, job: str) -> int:
    """The process that works on `job` for the server or client with that pid."""
    for child in psutil.Process(parent).children(recursive=True):
        if job in " ".join(child.cmdline()):
            return int(child.pid)
    raise AssertionError(f"{parent} has no process for {job}")


def kill_at(
    processes: Federation,
    name: str,
    iteration: int,
    pid: int | Callable[[], int],
    kill: Callable[[int], None],
) -> None:
    """Kill that process once the run has come so far."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        live = Live.read(live_file(processes.server_folder, name))
        if live is not None and live.iteration >= iteration:
            assert live.more["state"] == "training", live
            kill(pid if isinstance(pid, int) else pid())
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} did not reach iteration {iteration}")


def wait_until(processes: Federation, name: str, holds: Callable[[Live], bool]) -> Live:
    """What the run tells when that is so."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        live = Live.read(live_file(processes.server_folder, name))
        if live is not None and holds(live):
            return live
        time.sleep(0.1)
    raise AssertionError(f"it did not come to that; at last: {live}")


def kill_one(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)


def kill_family(pid: int) -> None:
    """kill -9 of a process and all it has started, as when a machine loses its power."""
    parent = psutil.Process(pid)
    for process in [parent, *parent.children(recursive=True)]:
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.5)


def sites(processes: Federation) -> dict[str, Path]:
    """Where the clients keep their state."""
    return {name: processes.folder / name / "flexfl" for name in processes.clients}
