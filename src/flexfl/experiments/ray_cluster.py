"""Joining a Ray cluster or starting one here, and what a cell asks of its nodes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flexfl.errors import FlexFLError
from flexfl.experiments.cell import Cell, threads_of

_KNOCK_SECONDS = 5.0
_STORE_BYTES = 100 * 2**20  # runs hand over nothing large; Ray would set aside a third of the memory


@contextmanager
def cluster(cpus: int | None) -> Iterator[Any]:
    """The module `ray`, connected: as it was before, else to RAY_ADDRESS, else to a Ray of this machine.

    The last has `cpus` CPUs, listens on the loopback address only (if nothing here has imported Ray
    before: it decides then) and ends with the context.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    local = address == "local"
    own = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": _STORE_BYTES} if local else {}
    with _environment(local), _own_sigterm():
        try:
            import ray
        except ImportError as error:
            raise FlexFLError("running on Ray needs ray; pip install 'flexfl[ray]'") from error
        joined = ray.is_initialized()
        try:
            if not joined:
                _knock(address)
                ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **own)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            if local:
                raise FlexFLError(f"Ray did not start on this machine: {error}") from error
            remedy = "check RAY_ADDRESS, or unset it to start a Ray of this machine"
            raise FlexFLError(f"no Ray cluster can be joined at {address}: {error}; {remedy}") from error
    try:
        yield ray
    finally:
        if not joined:
            ray.shutdown()


@contextmanager
def _environment(local: bool) -> Iterator[None]:
    """No statistics are sent; the second, despite its name, keeps Ray on loopback on Linux, too."""
    wanted = {"RAY_USAGE_STATS_ENABLED": "0"} | ({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if local else {})
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray puts a handler of its own there, and leaves it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _knock(address: str) -> None:
    """Where nobody answers, Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()


def needs(cell: Cell, resume: bool, nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The CPUs and GPUs of a cell's task: its threads (or one), and one GPU for cuda.

    Never more than the best node has: Ray would wait for such a node forever, while the run itself
    takes fewer threads, or tells that there is no such device.
    """
    try:
        threads = threads_of(cell, 1, resume)
    except Exception:  # a damaged run directory, which the run tells about
        threads = 1
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    fit = [node for node in alive if node.get("GPU", 0) >= 1] if _on_gpu(cell) else []
    most = max((node.get("CPU", 0) for node in fit or alive), default=0)
    return {"num_cpus": min(threads, most or threads), "num_gpus": 1 if fit else 0}


def _on_gpu(cell: Cell) -> bool:
    return cell.spec.engine.device.startswith("cuda")


class Marks:
    """Empty files beside the runs: a node that does not see them has other storage."""

    def __init__(self) -> None:
        self._by_folder: dict[Path, Path] = {}

    def __enter__(self) -> Marks:
        return self

    def __exit__(self, *_: object) -> None:
        for mark in self._by_folder.values():
            mark.unlink(missing_ok=True)

    def above(self, out: Path) -> Path:
        """The mark in the nearest folder that exists above a run directory."""
        folder = next(path for path in out.parents if path.is_dir())
        if folder not in self._by_folder:
            handle, name = tempfile.mkstemp(prefix=".flexfl-", dir=folder)
            os.close(handle)
            self._by_folder[folder] = Path(name)
        return self._by_folder[folder]
