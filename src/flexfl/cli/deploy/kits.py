"""flexfl deploy provision and rotate: keys, certificates and settings of all participants."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from flexfl.cli.deploy.shared import (
    ProjectFile,
    create_console,
    explain_os_errors,
    load_project,
    nvflare_modules,
)
from flexfl.errors import Fault, InputError

_Kits = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the kits.")]


def provision(project: ProjectFile, out: _Kits = Path("kits")) -> None:
    """Create the kits: a folder with certificates and settings for the server, each client and the admin.

    Run it again after adding clients to the project file: it creates the missing kits.
    """
    parsed, nvflare = load_project(project), nvflare_modules()
    with explain_os_errors(f"{out} must be a writable folder"):
        created = nvflare.kits.provision(parsed, out)
        copy = out / nvflare.kits.ADMIN / nvflare.project.PROJECT_FILE
        if copy.resolve() != project.resolve():
            shutil.copyfile(project, copy)
    console = create_console()
    console.print(f"{out}: created {', '.join(created)}" if created else f"{out}: all kits exist already")
    if created:
        console.print(
            f"copy each folder to its machine; keep {out / 'authority'} here: it signs the certificates"
        )


def rotate(
    project: ProjectFile,
    kit: Annotated[str, typer.Argument(metavar="NAME", help="A client, or server, or admin.")],
    out: _Kits = Path("kits"),
) -> None:
    """Create a new key and certificate for one client, the server or the admin."""
    parsed = load_project(project)
    if kit not in (names := ["server", "admin", *parsed.clients]):
        raise InputError(
            [Fault("NAME", f"must be one of {', '.join(names)}", kit, "correct it")], "the command"
        )
    with explain_os_errors(f"{out} must be the folder that provision created, with its authority"):
        nvflare_modules().kits.rotate(parsed, out, kit)
    restarted = "it and all clients" if kit == "server" else "it"
    create_console().print(f"copy {out / kit / 'startup'} to its machine, and restart {restarted}")
