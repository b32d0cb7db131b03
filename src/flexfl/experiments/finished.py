"""What of many runs is there already: nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from flexfl.errors import RunDirectoryError
from flexfl.experiments.cell import Cell, Outcome
from flexfl.results import Run
from flexfl.results.directory import differences, refuse_other_spec
from flexfl.results.run import METRICS_FILE, SPEC_FILE, read_spec
from flexfl.results.store import MetricStore
from flexfl.spec.schema import Spec

Execute = Callable[[Sequence[Cell]], list[Outcome]]
"""Runs cells, going on with those that were interrupted."""


def finished(cell: Cell) -> Run | None:
    """The cell's run if it has got as far as asked; of a longer one the part that was asked for."""
    asked = cell.spec.train.iterations
    try:
        if not _began(cell) or _differences(cell) or not _reached(cell.out, asked):
            return None
        run = Run(cell.out, until=asked)
        return run if run.summary is not None else None
    except RunDirectoryError:  # the attempt to go on with it will say what is wrong
        return None


def run_rest(cells: Sequence[Cell], execute: Execute) -> list[Outcome]:
    """Have those cells executed that are not finished; the outcomes of all, in the order of `cells`."""
    outcomes: dict[str, Outcome] = {}
    for cell in cells:
        if (run := finished(cell)) is not None and (summary := run.summary) is not None:
            outcomes[cell.name] = Outcome(
                cell, "done", summary["iterations"], summary["test_accuracy"], summary
            )
    rest = [cell for cell in cells if cell.name not in outcomes]
    if rest:
        outcomes |= {outcome.cell.name: outcome for outcome in execute(rest)}
    return [outcomes[cell.name] for cell in cells]


def refuse_others(cells: Sequence[Cell]) -> None:
    """Where all cells are needed, runs of other settings in their place are told before any work starts."""
    others = {}
    for cell in cells:
        with suppress(RunDirectoryError):  # one that cannot be read fails alone
            if _began(cell) and (differ := _differences(cell)):
                others[cell.out] = differ
    if others:
        refuse_other_spec(*next(iter(others.items())), others=len(others) - 1)


def _began(cell: Cell) -> bool:
    return (cell.out / SPEC_FILE).exists() and (cell.out / METRICS_FILE).exists()


def _reached(out: Path, iterations: int) -> bool:
    store = MetricStore(out / METRICS_FILE)
    try:
        return store.reached(iterations)
    finally:
        store.close()


def _differences(cell: Cell) -> list[str]:
    """Between the cell's settings and those its run has stored: threads are settled when it starts."""
    asked: Spec = cell.spec
    if asked.engine.threads is None:
        threads = read_spec(cell.out).get("engine", {}).get("threads")
        asked = asked.model_copy(update={"engine": asked.engine.model_copy(update={"threads": threads})})
    return differences(cell.out, asked.plain())
