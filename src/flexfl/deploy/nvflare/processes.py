"""Servers and clients as child processes, without NVFlare's shell scripts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # comes with NVFlare

from flexfl.deploy.nvflare.compact import DRIVERS
from flexfl.deploy.nvflare.kits import ORG, heartbeat_of, set_storage_paths
from flexfl.errors import FlexFLError

_APP = "nvflare.private.fed.app"


def command(kit: Path) -> list[str]:
    """Return the command that runs the server or client of a kit (as startup/sub_start.sh does)."""
    kit = kit.resolve()
    startup = kit / "startup"
    if (startup / "fed_server.json").exists():
        set_storage_paths(kit)
        module, config, identity = "server.server_train", "fed_server.json", []
    elif (startup / "fed_client.json").exists():
        name = json.loads((startup / "fed_client.json").read_text())["client"]["fqsn"]
        module, config, identity = "client.client_train", "fed_client.json", [f"uid={name}"]
    else:
        raise FlexFLError(f"{kit} is not the kit of a server or client; `provision` creates kits")
    heartbeat = f"heart_beat_interval={heartbeat_of(kit)}"
    settings = ["secure_train=true", *identity, f"org={ORG}", "config_folder=config", heartbeat]
    return [sys.executable, "-u", "-m", f"{_APP}.{module}", "-m", str(kit), "-s", config, "--set", *settings]


class Process:
    """A running server or client, with its job processes.

    Args:
        kit: Its kit.
        within: A command that runs the one after it, such as `ip netns exec NAME`.
    """

    def __init__(self, kit: Path, within: Sequence[str] = ()) -> None:
        self.kit = kit
        environment = os.environ | {"MALLOC_ARENA_MAX": "2", "NVFLARE_COMM_DRIVER_PATH": str(DRIVERS)}
        with (kit / "output.txt").open("ab") as output:
            self._child = subprocess.Popen(
                [*within, *command(kit)],
                cwd=kit,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def stop(self, seconds: float = 5.0) -> None:
        """End it and its job processes: after SIGTERM they have `seconds`, then they are killed."""
        processes = [*_process_tree(self.pid)]
        for send in (_terminate, _kill):
            for process in processes:
                send(process)
            end = time.monotonic() + seconds
            while any(_alive(process) for process in processes) and time.monotonic() < end:
                time.sleep(0.02)
        self._child.wait()


def _process_tree(pid: int) -> Iterator[Any]:
    """Yield a process and all its descendants; job processes are in other process groups."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        yield first
        yield from first.children(recursive=True)


def _terminate(process: Any) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()


def _kill(process: Any) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _alive(process: Any) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_port(host: str, port: int, process: Process, seconds: float = 60.0) -> None:
    """Wait until a server listens.

    Args:
        host: Host of the server.
        port: Port of the server.
        process: The server.
        seconds: How long to wait.

    Raises:
        FlexFLError: The server has ended, or does not listen in time.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not process.running:
            raise FlexFLError(f"the server in {process.kit} has ended; see {process.kit / 'output.txt'}")
        try:
            socket.create_connection((host, port), 1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise FlexFLError(f"nothing listens on {host}:{port} after {seconds:.0f} s")
