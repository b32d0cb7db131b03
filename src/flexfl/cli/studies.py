"""What the commands share that run a whole study and draw it: frontier and compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli import FAILED
from flexfl.cli.sweep import Place

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.experiments.cell import Cell

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting of all cells: --set train.iterations=500"
    ),
]
On = Annotated[
    Place, typer.Option("--on", help="Processes of this machine, or a Ray cluster (the extra ray).")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the results as JSON on standard output, and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")]


def kinds_of(formats: str) -> list[str]:
    """Return the formats of pictures that a list names.

    Raises:
        InputError: there is no such format.
    """
    from flexfl.errors import InputError
    from flexfl.report.figures import format_faults

    kinds = list(dict.fromkeys(name.strip() for name in formats.split(",")))
    if faults := format_faults(kinds):
        raise InputError(faults, "the command")
    return kinds


def console_of(*, as_json: bool, quiet: bool) -> Console:
    """Return where a study tells of itself: not where its JSON goes."""
    from rich.console import Console

    return Console(file=sys.stderr if as_json else sys.stdout, quiet=quiet, highlight=False, markup=False)


def run_all(console: Console, cells: Sequence[Cell], *, jobs: int, on: str) -> typer.Exit | None:
    """Run what is not finished; return how to exit if a run failed, since the others are shown first."""
    from flexfl.cli.run_many import run_many

    try:
        run_many(console, cells, ["flexfl", *sys.argv[1:]], jobs=jobs, on=on, table=False)
    except typer.Exit as stopped:
        if stopped.exit_code != FAILED:
            raise
        return stopped
    return None


def show_page(console: Console, page: Path) -> None:
    """Print where the files are, and what to open."""
    console.print(f"{'files':<14} {page.parent}", soft_wrap=True)
    console.print(f"{'open':<14} {page}", soft_wrap=True)
