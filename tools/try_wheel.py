"""Install the wheel into empty environments and use it there, far from the clone.

    python tools/try_wheel.py DIST [--clients] [--torch-index ADDRESS] [--keep FOLDER] PYTHON…

DIST is what `make wheel` makes. For each PYTHON (a command or a path): a new virtual environment, the wheel
with the pinned versions, `flexfl run quickstart`, `flexfl report`. With --clients a second environment: the
wheel and requirements-client.txt only, in which a server and two clients train over mutual TLS. Prints what
it took and how large the environments are; ends with 1 if something does not end well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LACKING = ("matplotlib", "plotly", "PIL", "numba", "llvmlite", "threadpoolctl", "pyarrow", "ray")
"""What an environment for clients must not have."""
ACCURACY = 0.75
"""Quickstart ends at 0.83; whatever differs between machines, it must have learnt."""
SPEC = """
[data]
clients = 2
partition = "iid"
[train]
iterations = 60
evaluate_every = 20
[budget]
uplink = 0.02
[deploy]
wait = 60.0
"""


class TrialError(Exception):
    """The wheel does not do what it should."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a working folder that is not in the clone."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    @property
    def megabytes(self) -> float:
        found = (path.lstat() for path in (self.folder / "venv").rglob("*"))
        return sum(entry.st_size for entry in found) / 1e6

    def run(self, command: str, *arguments: str, timeout: float = 1800) -> str:
        """Run a command of the environment and return its standard output."""
        done = subprocess.run(
            [self.bin / command, *arguments],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            shown = " ".join((command, *arguments))
            raise TrialError(
                f"{shown} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
            )
        return done.stdout

    def pip(self, *arguments: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def environment() -> dict[str, str]:
    """Return the variables of this process without those that lead back to the clone or its environment."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def create(python: str, folder: Path, dist: Path, torch_index: str) -> Environment:
    """Return an environment with torch from `torch_index`, if that is given."""
    folder.mkdir(parents=True)
    subprocess.run([python, "-m", "venv", folder / "venv"], env=environment(), check=True)
    trial = Environment(folder)
    if torch_index:
        trial.pip(
            "--constraint", str(dist / "constraints.txt"), "--no-deps", "--index-url", torch_index, "torch"
        )
    return trial


def try_plain(trial: Environment, wheel: Path, dist: Path) -> None:
    """Install the wheel as anybody would, run quickstart, and write its report."""
    trial.pip("--constraint", str(dist / "constraints.txt"), str(wheel))
    version = wheel.name.split("-")[1]
    for command in (("flexfl", "--version"), ("python", "-m", "flexfl", "--version")):
        if (output := trial.run(*command).strip()) != f"flexfl {version}":
            raise TrialError(f"{' '.join(command)} must say flexfl {version}, got {output!r}")
    home = trial.run("python", "-c", "import flexfl; print(flexfl.__file__)").strip()
    if not Path(home).is_relative_to(trial.folder / "venv"):
        raise TrialError(f"flexfl must come from the wheel, got {home}")
    summary = json.loads(trial.run("flexfl", "run", "quickstart", "--out", "runs/quickstart", "--json"))
    if not summary["test_accuracy"] > ACCURACY:
        raise TrialError(f"quickstart must end above {ACCURACY}, got {summary['test_accuracy']}")
    trial.run("flexfl", "report", "runs/quickstart")
    if not list(trial.folder.glob("**/*.html")):
        raise TrialError("flexfl report has written no page")


def try_clients(trial: Environment, wheel: Path, dist: Path) -> None:
    """Install what a client needs only, and train with a server and two clients as processes."""
    trial.pip("--no-deps", str(wheel))
    trial.pip("--constraint", str(dist / "constraints.txt"), "-r", str(dist / "requirements-client.txt"))
    found = f"import importlib.util as u; print(*[n for n in {LACKING!r} if u.find_spec(n)])"
    if names := trial.run("python", "-c", found).strip():
        raise TrialError(f"an environment for clients must not have {names}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    project = f'name = "trial"\nserver = "localhost"\nport = {port}\nclients = ["north", "south"]\n'
    (trial.folder / "trial.toml").write_text(project, encoding="utf-8")
    (trial.folder / "spec.toml").write_text(SPEC, encoding="utf-8")
    trial.run("flexfl", "deploy", "provision", "trial.toml")
    started = [("server", "kits/server"), ("client", "kits/north"), ("client", "kits/south")]
    with processes(trial, started):
        wait_for(trial, "north: connected", "south: connected")
        output = trial.run("flexfl", "deploy", "submit", "kits/admin", "spec.toml", timeout=300)
    if "spec: finished, iteration 60 of 60" not in output:
        raise TrialError(f"the run between machines must finish, got {output}")


@contextmanager
def processes(trial: Environment, commands: list[tuple[str, str]]) -> Iterator[None]:
    """Run `flexfl deploy` commands in the background, until the block ends."""
    running = [
        subprocess.Popen(
            [trial.bin / "flexfl", "deploy", *command],
            cwd=trial.folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        for command in commands
    ]
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(timeout=60)


def wait_for(trial: Environment, *words: str, seconds: float = 120.0) -> None:
    """Wait until `flexfl deploy status` says all of these."""
    end, output = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        try:
            output = trial.run("flexfl", "deploy", "status", "kits/admin", timeout=60)
        except TrialError as error:  # the server does not listen yet
            output = str(error)
        if all(word in output for word in words):
            return
        time.sleep(1.0)
    raise TrialError(f"{', '.join(words)} did not come within {seconds:.0f} s: {output}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--clients", action="store_true", help="try an install for clients, too")
    parser.add_argument("--torch-index", default="", help="the index that torch is taken from")
    parser.add_argument("--keep", type=Path, help="keep the environments here")
    given = parser.parse_args()
    (wheel,) = given.dist.resolve().glob("*.whl")
    trials = {"plain": try_plain} | ({"clients": try_clients} if given.clients else {})
    base = given.keep or Path(tempfile.mkdtemp(prefix="flexfl-wheel-"))
    failed = False
    for number, (python, name) in enumerate(itertools.product(given.pythons, trials)):
        folder, begin = base.resolve() / f"{number}-{name}", time.monotonic()
        try:
            trial = create(python, folder, wheel.parent, given.torch_index)
            trials[name](trial, wheel, wheel.parent)
            version = trial.run("python", "--version").strip()
            took = f"{time.monotonic() - begin:.0f} s, {trial.megabytes:,.0f} MB on disk"
            print(f"{version} on {platform.machine()}, {name}: good, {took}", flush=True)
        except (TrialError, OSError, subprocess.SubprocessError) as error:
            failed = True
            print(f"{python}, {name}: {error}", file=sys.stderr, flush=True)
        finally:
            if given.keep is None:
                shutil.rmtree(folder, ignore_errors=True)
    if given.keep is None:
        base.rmdir()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
