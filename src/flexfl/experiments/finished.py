"""What of many runs is there already: nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flexfl.experiments.parallel import Cell, OnOutcome, Outcome
from flexfl.results import Run
from flexfl.results.directory import differences
from flexfl.results.run import METRICS_FILE, SPEC_FILE, read_spec
from flexfl.results.store import MetricStore
from flexfl.spec.schema import Spec

Execute = Callable[[Sequence[Cell], OnOutcome], list[Outcome]]
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


def run_rest(cells: Sequence[Cell], execute: Execute, on_change: OnOutcome | None = None) -> list[Outcome]:
    """Run those cells that are not finished; the outcomes of all, in the order of `cells`."""
    told = on_change or (lambda outcome: None)
    outcomes: dict[str, Outcome] = {}
    for cell in cells:
        if (run := finished(cell)) is not None and (summary := run.summary) is not None:
            found = Outcome(cell, "done", summary["iterations"], summary["test_accuracy"], summary)
            outcomes[cell.name] = found
            told(found)
    rest = [cell for cell in cells if cell.name not in outcomes]
    if rest:
        outcomes |= {outcome.cell.name: outcome for outcome in execute(rest, told)}
    return [outcomes[cell.name] for cell in cells]


def _as_run(cell: Cell) -> dict[str, object]:
    """The cell's settings as its run has stored them: threads are settled when it starts."""
    asked: Spec = cell.spec
    if asked.engine.threads is None:
        threads = read_spec(cell.out)["engine"].get("threads")
        asked = asked.model_copy(update={"engine": asked.engine.model_copy(update={"threads": threads})})
    return asked.plain()
