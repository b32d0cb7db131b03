"""flexfl deploy remove and admit: which clients the server accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flexfl.cli.deploy.shared import AdminKit, create_console, nvflare_modules, project_of
from flexfl.errors import Fault, InputError

_Client = Annotated[str, typer.Argument(metavar="CLIENT", help="Name of the client.")]


def remove(kit: AdminKit, client: _Client) -> None:
    """Disconnect a client and refuse it from now on, even with a valid certificate."""
    _check_client(kit, client)
    with nvflare_modules().session.session(kit) as admin:
        admin.refuse(client)
    create_console().print(
        f"{client} is refused from now on; readmit it with: flexfl deploy admit {kit} {client}"
    )


def admit(kit: AdminKit, client: _Client) -> None:
    """Accept a removed client again."""
    _check_client(kit, client)
    with nvflare_modules().session.session(kit) as admin:
        admin.admit(client)
    create_console().print(f"{client} may connect again")


def _check_client(kit: Path, client: str) -> None:
    """Raise InputError if the project has no such client."""
    if client not in (clients := project_of(kit).clients):
        rule = f"must be one of {', '.join(clients)}"
        raise InputError([Fault("CLIENT", rule, client, "correct it")], "the command")
