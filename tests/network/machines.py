"""A federation whose server, clients and admin are machines of a `Network`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from flexfl.deploy.nvflare.kits import ADMIN, SERVER, Project, provision
from flexfl.deploy.nvflare.processes import Process
from flexfl.deploy.project import PROJECT_FILE
from flexfl.deploy.settings import SITE_FILE
from network.namespaces import Network

PORT = 8002


@dataclass(frozen=True)
class Machines:
    """The running processes; commands of the admin run on its machine."""

    network: Network
    folder: Path

    def flexfl(self, *arguments: str, seconds: float = 200.0) -> str:
        """Run `flexfl deploy …` on the admin's machine, in the folder of the kits."""
        command = [*self.network.within(ADMIN), sys.executable, "-m", "flexfl", "deploy", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, name: str, spec: str) -> Path:
        """Train a spec to the end; return the run directory."""
        (self.folder / f"{name}.toml").write_text(spec)
        self.flexfl("submit", ADMIN, f"{name}.toml", "--name", name)
        return self.folder / SERVER / "flexfl" / name

    def wait_connected(self, clients: list[str], seconds: float = 60.0) -> None:
        """Wait until all of them are connected."""
        end = time.monotonic() + seconds
        while True:
            try:
                status = self.flexfl("status", ADMIN)
            except AssertionError:
                status = ""  # the server does not listen yet
            if all(f"{client}: connected" in status for client in clients):
                return
            assert time.monotonic() < end, status
            time.sleep(0.5)


@contextmanager
def machines(network: Network, folder: Path, clients: list[str], heartbeat: float) -> Iterator[Machines]:
    """Start server and clients, each on the machine of its name; stop them at the end."""
    weights = dict.fromkeys(clients, 1 / len(clients))
    project = Project(name="links", server=SERVER, port=PORT, clients=weights, heartbeat=heartbeat)
    provision(project, folder)
    described = {"name": "links", "server": SERVER, "port": PORT, "clients": clients, "heartbeat": heartbeat}
    (folder / ADMIN / PROJECT_FILE).write_text(tomli_w.dumps(described))
    with ExitStack() as stack:
        for name in (SERVER, *clients):
            if name != SERVER:
                (folder / name / "flexfl").mkdir(exist_ok=True)
                (folder / name / "flexfl" / SITE_FILE).write_text("threads = 1\n")
            process = Process(folder / name, network.within(name))
            stack.callback(process.stop)
        running = Machines(network, folder)
        running.wait_connected(clients)
        yield running
