"""Many runs from one command: one display, one closing table, what failed at the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from flexfl.cli import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.experiments import Cell, Outcome


def several(
    console: Console,
    cells: Sequence[Cell],
    again: Sequence[str],
    *,
    jobs: int,
    resume: bool = True,
    on: str = "here",
    as_json: bool = False,
    table: bool = True,
) -> None:
    """Run what is not finished; ends the command if anything failed or was stopped.

    again  the command that goes on
    on     "here" in processes of this machine, or "ray" on a cluster
    table  whether to close with one line for each run
    """
    from flexfl.cli.data import bring_for
    from flexfl.cli.show import CellLines, show_outcomes
    from flexfl.experiments import run_cells, run_cells_on_ray, run_rest

    def execute(rest: Sequence[Cell]) -> list[Outcome]:
        if len(rest) < len(cells):
            console.print(f"{len(cells) - len(rest)} of {len(cells)} runs are there already", soft_wrap=True)
        bring_for(console, [cell.spec for cell in rest])
        with CellLines(console, rest) as lines:
            if on == "ray":
                return run_cells_on_ray(rest, cpus=jobs, resume=resume, on_change=lines.update)
            return run_cells(rest, jobs=jobs, resume=resume, on_change=lines.update)

    outcomes = run_rest(cells, execute) if resume else execute(cells)
    if as_json:
        told: dict[str, Any] = {found.cell.name: found.summary for found in outcomes}
        typer.echo(json.dumps(told))
    elif table:
        show_outcomes(console, outcomes)
    for found in outcomes:
        if found.state == "failed":
            typer.echo(f"flexfl: {found.cell.name} failed: {found.error}", err=True)
    if any(found.state == "stopped" for found in outcomes):
        typer.echo(f"flexfl: stopped; go on with: {shlex.join(again)}", err=True)
        raise typer.Exit(INTERRUPTED)
    if any(found.state == "failed" for found in outcomes):
        raise typer.Exit(FAILED)
