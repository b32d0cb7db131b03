"""Finished runs of an experiment, which are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from flexfl.errors import InputError, RunDirectoryError
from flexfl.experiments.cell import Cell, Outcome, other_length
from flexfl.results import Run
from flexfl.results.directory import differences, refuse_other_spec
from flexfl.results.run import METRICS_FILE, SPEC_FILE
from flexfl.results.store import MetricStore

Execute = Callable[[Sequence[Cell]], list[Outcome]]
"""Runs cells, and resumes those that were interrupted."""


def finished_run(cell: Cell) -> Run | None:
    """Return the finished run of a cell, truncated to the requested iterations; None if it is unfinished.

    A run that planned for its end (`spec.build.plans_for_end`) is not truncated: it is another run.
    """
    requested = cell.spec.train.iterations
    try:
        if not _started(cell) or _differences(cell) or not _reached(cell.out, requested):
            return None
        run = Run(cell.out, until=requested)
        return run if run.summary is not None else None
    except (RunDirectoryError, InputError):  # the attempt to resume it reports what is wrong
        return None


def run_unfinished(cells: Sequence[Cell], execute: Execute) -> list[Outcome]:
    """Run the cells that are not finished; return the outcomes of all, in the order of `cells`."""
    outcomes: dict[str, Outcome] = {}
    for cell in cells:
        if (run := finished_run(cell)) is not None and (summary := run.summary) is not None:
            outcomes[cell.name] = Outcome(
                cell, "done", summary["iterations"], summary["test_accuracy"], summary
            )
    rest = [cell for cell in cells if cell.name not in outcomes]
    if rest:
        outcomes |= {outcome.cell.name: outcome for outcome in execute(rest)}
    return [outcomes[cell.name] for cell in cells]


def refuse_other_specs(cells: Sequence[Cell]) -> None:
    """Raise if the directory of any cell holds a run with another spec.

    For experiments that need all of their cells: the fault is found before any work starts.

    Raises:
        RunDirectoryError: There is such a run.
    """
    others = {}
    for cell in cells:
        with suppress(RunDirectoryError, InputError):  # an unreadable run fails when it is resumed
            if _started(cell) and (differ := _differences(cell)):
                others[cell.out] = differ
    if others:
        refuse_other_spec(*next(iter(others.items())), others=len(others) - 1)


def _started(cell: Cell) -> bool:
    return (cell.out / SPEC_FILE).exists() and (cell.out / METRICS_FILE).exists()


def _reached(out: Path, iterations: int) -> bool:
    store = MetricStore(out / METRICS_FILE)
    try:
        return store.reached(iterations)
    finally:
        store.close()


def _differences(cell: Cell) -> list[str]:
    """List the differences between a cell's spec and the stored one."""
    return differences(cell.out, cell.spec.plain()) or other_length(cell)
