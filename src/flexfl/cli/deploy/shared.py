"""What the commands of flexfl deploy share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.errors import FlexFLError

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.deploy.nvflare.kits import Project

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: --set train.iterations=500"),
]
ProjectFile = Annotated[
    Path, typer.Argument(metavar="PROJECT.toml", help="Who takes part; see docs/deploy.md.")
]
AdminKit = Annotated[Path, typer.Argument(metavar="KIT", help="The kit of the admin.")]


def adapter() -> Any:
    """The modules that need NVFlare."""
    try:
        from flexfl.deploy import demo, project
        from flexfl.deploy.nvflare import kits, processes, session
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("nvflare", "psutil")):
            raise
        raise FlexFLError(
            "flexfl deploy needs NVFlare; install it with: pip install 'flexfl[deploy]'"
        ) from error
    return SimpleNamespace(demo=demo, project=project, kits=kits, processes=processes, session=session)


@contextmanager
def told_plainly(rule: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FlexFLError(f"{rule} ({error})") from error


def read(path: Path) -> Project:
    found: Project = adapter().project.read_project(path)
    return found


def console_of() -> Console:
    from rich.console import Console

    return Console(highlight=False)
