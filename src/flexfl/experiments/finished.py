"""What of many runs is there already: nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flexfl.experiments.cell import Cell, Outcome
from flexfl.results import Run
from flexfl.results.directory import differences
from flexfl.results.run import METRICS_FILE, SPEC_FILE, read_spec
from flexfl.results.store import MetricStore
from flexfl.spec.schema import Spec

Execute = Callable[[Sequence[Cell]], list[Outcome]]
"""Runs cells, going on with those that were interrupted."""


def finished(cell: Cell) -> Run | None:
    """The cell's run if it has got as far as asked; of a longer one the part that was asked for."""
    if not (cell.out / SPEC_FILE).exists() or not (cell.out / METRICS_FILE).exists():
        return None
    if differences(cell.out, _as_run(cell)):
        return None  # the attempt to go on with it will say what differs
    store = MetricStore(cell.out / METRICS_FILE)
    try:
        rows, evaluated = store.reached()
    finally:
        store.close()
    asked, every = cell.spec.train.iterations, cell.spec.train.evaluate_every
    if rows < asked or evaluated < asked - asked % every:
        return None
    run = Run(cell.out, until=asked)
    return run if run.summary is not None else None


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


def _as_run(cell: Cell) -> dict[str, object]:
    """The cell's settings as its run has stored them: threads are settled when it starts."""
    asked: Spec = cell.spec
    if asked.engine.threads is None:
        threads = read_spec(cell.out)["engine"].get("threads")
        asked = asked.model_copy(update={"engine": asked.engine.model_copy(update={"threads": threads})})
    return asked.plain()
