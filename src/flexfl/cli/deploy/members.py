"""flexfl deploy remove and admit: whom the server lets in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flexfl.cli.deploy.shared import AdminKit, adapter, console_of, read
from flexfl.errors import Fault, InputError

_Client = Annotated[str, typer.Argument(metavar="CLIENT", help="Its name.")]


def remove(kit: AdminKit, client: _Client) -> None:
    """Log a client out and keep it out, whatever certificate it has."""
    _known(kit, client)
    with adapter().session.session(kit) as admin:
        admin.refuse(client)
    console_of().print(
        f"{client} is refused from now on; let it in again with: flexfl deploy admit {kit} {client}"
    )


def admit(kit: AdminKit, client: _Client) -> None:
    """Let a removed client in again."""
    _known(kit, client)
    with adapter().session.session(kit) as admin:
        admin.admit(client)
    console_of().print(f"{client} may connect again")


def _known(kit: Path, client: str) -> None:
    if client not in (clients := read(kit / "project.toml").clients):
        rule = f"must be one of {', '.join(clients)}"
        raise InputError([Fault("CLIENT", rule, client, "correct it")], "the command")
