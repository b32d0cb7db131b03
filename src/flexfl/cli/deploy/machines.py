"""flexfl deploy server and client: what runs on each machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from flexfl.cli.deploy.shared import adapter, console_of
from flexfl.errors import Fault, FlexFLError, InputError


def server(kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit of the server.")]) -> None:
    """Run the server of a kit until Ctrl-C."""
    _foreground(kit, "server")


def client(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit of this client.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE.npz", help="Its samples: train_x and train_y.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Cores it may use.")] = None,
    modules: Annotated[
        list[str] | None, typer.Option("--allow", metavar="PACKAGE", help="A package that runs may call.")
    ] = None,
) -> None:
    """Run the client of a kit until Ctrl-C; what is told here is kept in the kit."""
    import tomli_w

    from flexfl.deploy.settings import SITE_FILE, SiteSettings

    adapter().kits.check(kit)
    folder = kit / "flexfl"
    if data is not None and not data.is_file():
        raise InputError([Fault("--data", "must be an .npz file", str(data), "name one")], "the command")
    told = {"data": None if data is None else str(data.resolve()), "threads": threads, "modules": modules}
    known = SiteSettings.read(folder).model_dump(exclude_none=True)
    known |= {name: value for name, value in told.items() if value}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SITE_FILE).write_text(tomli_w.dumps(known), encoding="utf-8")
    _foreground(kit, "client")


def _foreground(kit: Path, kind: str) -> None:
    """Run a kit's process until Ctrl-C or SIGTERM."""
    if not (kit / "startup" / f"fed_{kind}.json").exists():
        raise FlexFLError(f"{kit} is no kit of a {kind}; flexfl deploy provision makes them")
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    nvflare, console = adapter(), console_of()
    nvflare.kits.check(kit)
    process = nvflare.processes.Process(kit)
    console.print(f"running; Ctrl-C stops it. What it says is in {kit / 'log.txt'}")
    try:
        while process.running and not asked.wait(0.2):
            pass
    finally:
        process.stop()
    if not asked.is_set():
        raise FlexFLError(f"{kit} has ended by itself; see {kit / 'output.txt'}")
    console.print("stopped")
