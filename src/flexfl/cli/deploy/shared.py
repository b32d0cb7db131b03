"""Options and helpers shared by the commands of flexfl deploy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.cli import completion
from flexfl.errors import FlexFLError
from flexfl.extras import needed_for

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.deploy.nvflare.kits import Project

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: --set train.iterations=500"),
]
ProjectFile = Annotated[
    Path, typer.Argument(metavar="PROJECT.toml", help="The participants; see docs/howto/deploy.md.")
]
SPEC = typer.Argument(metavar="SPEC", help="A bundled spec, or a TOML file.", autocompletion=completion.specs)
AdminKit = Annotated[Path, typer.Argument(metavar="KIT", help="The kit of the admin.")]


def nvflare_modules() -> Any:
    """Import and return the modules that need NVFlare.

    Raises:
        MissingPackageError: NVFlare is not installed.
    """
    with needed_for("flexfl deploy"):
        from flexfl.deploy import demo, project
        from flexfl.deploy.nvflare import kits, processes, session
    return SimpleNamespace(demo=demo, project=project, kits=kits, processes=processes, session=session)


@contextmanager
def explain_os_errors(rule: str) -> Iterator[None]:
    """Raise an OSError again as a FlexFLError that states the violated rule."""
    try:
        yield
    except OSError as error:
        raise FlexFLError(f"{rule} ({error})") from error


def load_project(path: Path) -> Project:
    """Load a project file."""
    project: Project = nvflare_modules().project.read_project(path)
    return project


def project_of(kit: Path) -> Project:
    """Load the project file in the admin's kit.

    Raises:
        FlexFLError: It is not the kit of the admin; says whose it is.
    """
    nvflare_modules().kits.require(kit, "admin")
    return load_project(kit / "project.toml")


def create_console() -> Console:
    """Return a console without markup, so that brackets in names are printed as they are."""
    from rich.console import Console

    return Console(highlight=False, markup=False)
