"""flexfl sweep: run a grid of settings × seeds from one TOML file."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Place(StrEnum):
    here = "here"
    ray = "ray"


JOBS = typer.Option(
    "--jobs", min=1, help="How many runs at a time; they share the cores.", show_default="cores"
)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file with the sweep.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the runs.", show_default="runs/FILE"),
    ] = None,
    jobs: Annotated[int | None, JOBS] = None,
    on: Annotated[
        Place, typer.Option("--on", help="Processes of this machine, or a Ray cluster (the extra ray).")
    ] = Place.here,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summaries as JSON on standard output, and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run all cells of a sweep; finished runs are skipped, interrupted ones are resumed."""
    from rich.console import Console

    from flexfl.cli.run_many import run_many
    from flexfl.experiments.sweep import load_sweep

    base = out or Path("runs") / file.stem
    cells = load_sweep(file).cells(base)
    console = Console(file=sys.stderr if as_json else sys.stdout, quiet=quiet, highlight=False, markup=False)
    command = ["flexfl", "sweep", str(file), "--out", str(base), "--on", on.value]
    command += [] if jobs is None else ["--jobs", str(jobs)]
    run_many(console, cells, command, jobs=jobs or cores(), on=on.value, as_json=as_json, table=not quiet)
    if not as_json:
        console.print(f"report         flexfl report {base}", soft_wrap=True)


def cores() -> int:
    """Return the number of CPU cores of this machine."""
    return os.cpu_count() or 1
