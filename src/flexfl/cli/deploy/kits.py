"""flexfl deploy provision and rotate: keys, certificates and settings of those who take part."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from flexfl.cli.deploy.shared import ProjectFile, adapter, console_of, read, told_plainly
from flexfl.errors import Fault, InputError

_Kits = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the kits.")]


def provision(project: ProjectFile, out: _Kits = Path("kits")) -> None:
    """Certificates and settings: a folder for the server, for each client and for the admin.

    Called again after clients were added to the project file, it makes what is missing.
    """
    given, nvflare = read(project), adapter()
    with told_plainly(f"{out} must be a folder that can be written to"):
        made = nvflare.kits.provision(given, out)
        copy = out / nvflare.kits.ADMIN / nvflare.project.PROJECT_FILE
        if copy.resolve() != project.resolve():
            shutil.copyfile(project, copy)
    console = console_of()
    console.print(f"{out}: made {', '.join(made)}" if made else f"{out}: everything is there already")
    if made:
        console.print(
            f"copy each folder to its machine; {out / 'authority'} signs certificates: keep it here"
        )


def rotate(
    project: ProjectFile,
    kit: Annotated[str, typer.Argument(metavar="NAME", help="A client, or server, or admin.")],
    out: _Kits = Path("kits"),
) -> None:
    """A new key and certificate for one client, the server or the admin."""
    given = read(project)
    if kit not in (known := ["server", "admin", *given.clients]):
        raise InputError(
            [Fault("NAME", f"must be one of {', '.join(known)}", kit, "correct it")], "the command"
        )
    with told_plainly(f"{out} must be the folder that provision made, with its authority"):
        adapter().kits.rotate(given, out, kit)
    again = "all clients too" if kit == "server" else "it"
    console_of().print(f"bring {out / kit / 'startup'} to its machine, and start {again} again")
