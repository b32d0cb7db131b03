"""flexfl deploy server and client: the processes on each machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from flexfl.cli.deploy.shared import create_console, nvflare_modules
from flexfl.errors import Fault, FlexFLError, InputError


def server(kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit of the server.")]) -> None:
    """Run a server from its kit until Ctrl-C."""
    _foreground(kit, "server")


def client(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit of this client.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE.npz", help="Its samples: train_x and train_y.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Cores it may use.")] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PACKAGE", help="A package whose functions runs may call."),
    ] = None,
) -> None:
    """Run a client from its kit until Ctrl-C; options are saved in the kit."""
    import tomli_w

    from flexfl.deploy.settings import SITE_FILE, SiteSettings

    nvflare_modules().kits.require(kit, "client")
    nvflare_modules().kits.check(kit)
    folder = kit / "flexfl"
    if data is not None and not data.is_file():
        raise InputError([Fault("--data", "must be an .npz file", str(data), "name one")], "the command")
    options = {"data": None if data is None else str(data.resolve()), "threads": threads, "modules": modules}
    settings = SiteSettings.read(folder).model_dump(exclude_none=True)
    settings |= {name: value for name, value in options.items() if value}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SITE_FILE).write_text(tomli_w.dumps(settings), encoding="utf-8")
    _foreground(kit, "client")


def _foreground(kit: Path, kind: str) -> None:
    """Run a kit's process until Ctrl-C or SIGTERM."""
    nvflare_modules().kits.require(kit, kind)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    nvflare, console = nvflare_modules(), create_console()
    nvflare.kits.check(kit)
    process = nvflare.processes.Process(kit)
    console.print(f"running; Ctrl-C stops it. Its log is in {kit / 'log.txt'}")
    try:
        while process.running and not stopping.wait(0.2):
            pass
    finally:
        process.stop()
    if not stopping.is_set():
        raise FlexFLError(f"{kit} has ended unexpectedly; see {kit / 'output.txt'}")
    console.print("stopped")
