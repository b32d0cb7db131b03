"""Many runs from one command, with a common progress display and a final table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from flexfl.cli import FAILED, INTERRUPTED, as_command

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.experiments import Cell, Outcome


def run_many(
    console: Console,
    cells: Sequence[Cell],
    resume_command: Sequence[str],
    *,
    jobs: int,
    resume: bool = True,
    on: str = "here",
    as_json: bool = False,
    table: bool = True,
) -> None:
    """Run the cells that are not finished.

    Args:
        console: Where to print.
        cells: The runs.
        resume_command: The command that resumes them, to be printed if they are stopped.
        jobs: How many runs at a time; on Ray, the CPUs of a local cluster.
        resume: Skip finished runs and resume interrupted ones.
        on: "here" for processes of this machine, or "ray" for a cluster.
        as_json: Print the summaries as JSON on standard output.
        table: Whether to print a final table with one line per run.

    Raises:
        typer.Exit: A run failed or was stopped.
    """
    from flexfl.cli.data import ensure_datasets
    from flexfl.cli.show import CellLines, show_notes, show_outcomes
    from flexfl.experiments import run_cells, run_cells_on_ray, run_unfinished

    def execute(unfinished: Sequence[Cell]) -> list[Outcome]:
        if len(unfinished) < len(cells):
            finished = len(cells) - len(unfinished)
            console.print(f"{finished} of {len(cells)} runs are finished already", soft_wrap=True)
        ensure_datasets(console, [cell.spec for cell in unfinished])
        show_notes(console, [cell.spec for cell in unfinished])
        with CellLines(console, unfinished) as lines:
            if on == "ray":
                return run_cells_on_ray(unfinished, cpus=jobs, resume=resume, on_change=lines.update)
            return run_cells(unfinished, jobs=jobs, resume=resume, on_change=lines.update)

    outcomes = run_unfinished(cells, execute) if resume else execute(cells)
    if as_json:
        summaries: dict[str, Any] = {outcome.cell.name: outcome.summary for outcome in outcomes}
        typer.echo(json.dumps(summaries))
    elif table:
        show_outcomes(console, outcomes)
    for outcome in outcomes:
        if outcome.state == "failed":
            typer.echo(f"flexfl: {outcome.cell.name} failed: {as_command(outcome.error)}", err=True)
    if any(outcome.state == "stopped" for outcome in outcomes):
        typer.echo(f"flexfl: stopped; resume with: {shlex.join(resume_command)}", err=True)
        raise typer.Exit(INTERRUPTED)
    if any(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(FAILED)
