"""A federation on this machine: a server and clients as processes, over mutual TLS."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from flexfl.deploy.nvflare.kits import ADMIN, SERVER, Project, provision
from flexfl.deploy.nvflare.processes import Process, wait_for_port
from flexfl.deploy.nvflare.session import Session, running, session, wait_for_clients
from flexfl.deploy.plan import STATE_FILE, Plan, live_file
from flexfl.deploy.settings import SITE_FILE
from flexfl.deploy.watching import OnLive, watch
from flexfl.errors import FlexFLError, RunDirectoryError
from flexfl.results.observer import Live

_START_SECONDS = 60.0
_HEARTBEAT = 2.0
"""Seconds; on one machine bytes cost nothing, and who is gone is noticed soon."""


@dataclass(frozen=True)
class Federation:
    """The running processes of a federation; `clients` by name."""

    project: Project
    folder: Path
    server: Process
    clients: dict[str, Process]
    admin: Session

    @property
    def server_folder(self) -> Path:
        """The folder in which the server stores its runs."""
        return self.folder / SERVER / "flexfl"

    def submit(self, plan: Plan) -> str:
        """Submit a run; return the ID of its job."""
        return self.admin.submit(plan.name, plan.settings(), list(self.project.clients))

    def watch(self, name: str, on_live: OnLive = lambda live: None) -> Live:
        """Follow the run of that name until it has ended, and return its last status."""

        def runs() -> bool:
            return self.server.running and any(job["name"] == name for job in running(self.admin))

        return watch(lambda: self.live(name), runs, on_live=on_live)

    def live(self, name: str) -> Live | None:
        """Return the current status of the run of that name; None if there is none yet."""
        return Live.read(live_file(self.server_folder, name))


@contextmanager
def federation(
    folder: Path,
    clients: int,
    *,
    name: str = "demo",
    modules: list[str] | None = None,
    heartbeat: float = _HEARTBEAT,
) -> Iterator[Federation]:
    """Start a server and clients on this machine, and stop them at the end.

    Args:
        folder: Where to create their kits.
        clients: Number of clients.
        name: Name of the project.
        modules: Packages whose functions runs may call.
        heartbeat: Seconds between two heartbeats of a client.
    """
    names = [f"site-{n + 1}" for n in range(clients)]
    weights = dict.fromkeys(names, 1 / clients)
    project = Project(name=name, server="localhost", port=_free_port(), clients=weights, heartbeat=heartbeat)
    provision(project, folder)
    for client in names:
        site = folder / client / "flexfl"
        site.mkdir(exist_ok=True)
        # One core each: they share this machine.
        settings = {"threads": 1, "paths": True, "modules": modules or []}
        (site / SITE_FILE).write_text(tomli_w.dumps(settings), encoding="utf-8")
    with ExitStack() as stack:
        server = start_process(stack, folder / SERVER)
        processes = {client: start_process(stack, folder / client) for client in names}
        wait_for_port(project.server, project.port, server)
        admin = stack.enter_context(session(folder / ADMIN, _START_SECONDS))
        if missing := set(names) - set(wait_for_clients(admin, names, _START_SECONDS)):
            raise FlexFLError(f"{', '.join(sorted(missing))} did not connect in {_START_SECONDS:.0f} s")
        yield Federation(project, folder, server, processes, admin)


def start_process(stack: ExitStack, kit: Path) -> Process:
    """Start the server or client of a kit; it is stopped when the stack is closed."""
    process = Process(kit)
    stack.callback(process.stop)
    return process


def run_demo(plan: Plan, out: Path, *, on_step: Callable[[str], None], on_live: OnLive) -> None:
    """Train in a federation on this machine.

    Args:
        plan: The run, from `Plan.local`.
        out: The run directory, with the same files as that of a simulation.
        on_step: Called with a description of each step.
        on_live: Called with every new status of the run.

    Raises:
        FlexFLError: The run failed; the logs of the processes are kept.
    """
    if out.exists():
        raise RunDirectoryError(f"{out} exists already; choose another out=…")
    folder = Path(tempfile.mkdtemp(prefix="flexfl-demo-"))
    try:
        on_step(f"creating certificates, starting {len(plan.roster)} clients")
        with federation(folder, len(plan.roster), modules=plan.packages) as processes:
            on_step("training over mutual TLS")
            processes.submit(plan)
            live = processes.watch(plan.name, on_live)
            if live.more["state"] != "finished":
                raise FlexFLError(str(live.more.get("error", "the run was stopped")))
            excluded = shutil.ignore_patterns(f"{STATE_FILE}*", ".lock")
            shutil.copytree(processes.server_folder / plan.name, out, ignore=excluded)
            on_step("stopping all processes")
    except FlexFLError as error:
        raise FlexFLError(f"{error}\nthe logs of the processes are in {folder}/*/log.txt") from error
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
