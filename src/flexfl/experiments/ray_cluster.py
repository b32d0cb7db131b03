"""Connecting to a Ray cluster, the resources a cell requests, and a check for shared storage."""

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
from flexfl.experiments.cell import Cell, thread_count
from flexfl.extras import needed_for

_CONNECT_SECONDS = 5.0
_STORE_BYTES = 100 * 2**20  # runs return nothing large; by default Ray reserves a third of the memory


@contextmanager
def cluster(cpus: int | None) -> Iterator[Any]:
    """Yield the module `ray`, connected: as before, else to RAY_ADDRESS, else to a new local cluster.

    A local cluster listens on the loopback address only (provided that this process has not imported
    Ray before, since Ray decides this on import) and is shut down with the context.

    Args:
        cpus: CPUs of a local cluster; None for all.

    Raises:
        FlexFLError: Ray is not installed, or there is no cluster to join.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    local = address == "local"
    options = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    with _environment(local), _restore_sigterm():
        with needed_for("running on Ray"):
            import ray
        joined = ray.is_initialized()
        try:
            if not joined:
                _check_reachable(address)
                ray.init(
                    address, logging_level=logging.ERROR, log_to_driver=False, **(options if local else {})
                )
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            if local:
                raise FlexFLError(f"Ray did not start on this machine: {error}") from error
            remedy = "check RAY_ADDRESS, or unset it to start Ray on this machine"
            raise FlexFLError(f"no Ray cluster can be joined at {address}: {error}; {remedy}") from error
    try:
        yield ray
    finally:
        if not joined:
            ray.shutdown()


@contextmanager
def _environment(local: bool) -> Iterator[None]:
    """Set environment variables for Ray: no usage statistics, and loopback only if local.

    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER, despite its name, keeps Ray on loopback on Linux, too.
    """
    wanted = {"RAY_USAGE_STATS_ENABLED": "0"} | ({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if local else {})
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _restore_sigterm() -> Iterator[None]:
    """Restore the SIGTERM handler, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at `address`; Ray would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()


def task_resources(cell: Cell, resume: bool, nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the CPUs and GPUs that a cell's task requests: a CPU per thread, and one GPU for cuda.

    Never more than the best node has: Ray would wait for a larger node forever, whereas the run
    itself uses fewer threads, or reports that there is no such device.
    """
    try:
        threads = thread_count(cell, 1, resume)
    except Exception:  # a damaged run directory, which the run itself reports
        threads = 1
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    suitable = [node for node in alive if node.get("GPU", 0) >= 1] if _on_gpu(cell) else []
    most = max((node.get("CPU", 0) for node in suitable or alive), default=0)
    return {"num_cpus": min(threads, most or threads), "num_gpus": 1 if suitable else 0}


def _on_gpu(cell: Cell) -> bool:
    return cell.spec.engine.device.startswith("cuda")


class StorageMarkers:
    """Temporary empty files beside the runs; a node that does not see them has other storage."""

    def __init__(self) -> None:
        self._by_folder: dict[Path, Path] = {}

    def __enter__(self) -> StorageMarkers:
        return self

    def __exit__(self, *_: object) -> None:
        for marker in self._by_folder.values():
            marker.unlink(missing_ok=True)

    def above(self, out: Path) -> Path:
        """Return the marker in the nearest existing folder above a run directory; create it if needed."""
        folder = next(path for path in out.parents if path.is_dir())
        if folder not in self._by_folder:
            handle, name = tempfile.mkstemp(prefix=".flexfl-", dir=folder)
            os.close(handle)
            self._by_folder[folder] = Path(name)
        return self._by_folder[folder]
