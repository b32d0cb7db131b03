"""One run of an experiment: its spec, its outcome, and the function that runs it."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfl.errors import FlexFLError, FlexFLWarning
from flexfl.results.directory import refuse_other_spec
from flexfl.results.observer import Observer, Progress
from flexfl.results.run import SPEC_FILE, read_spec
from flexfl.spec.build import plans_for_end
from flexfl.spec.schema import Spec

REPORT_SECONDS = 0.2
"""Seconds between two progress reports of a run, and between two polls for them."""


@dataclass(frozen=True)
class Cell:
    """One run to do: its name, its spec and its run directory."""

    name: str
    spec: Spec
    out: Path


@dataclass
class Outcome:
    """The state of a cell; reported repeatedly while it runs."""

    cell: Cell
    state: str = "waiting"
    """waiting, running, done, stopped (can be resumed) or failed."""
    iteration: int = 0
    accuracy: float | None = None
    summary: dict[str, Any] | None = None
    error: str = ""


OnOutcome = Callable[[Outcome], None]
Report = Callable[..., None]
"""Takes the changed fields of an `Outcome` as keyword arguments."""


def outcome_updater(outcomes: Sequence[Outcome], on_change: OnOutcome | None) -> Callable[..., None]:
    """Return a function `update(number, **changes)` that changes an outcome and calls `on_change` with it."""

    def update(number: int, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(outcomes[number], name, value)
        if on_change is not None:
            on_change(outcomes[number])

    return update


def thread_count(cell: Cell, share: int, resume: bool) -> int:
    """Return the number of threads for a cell.

    Args:
        cell: The cell; a number of threads in its spec takes precedence.
        share: The number of threads if nothing else is specified.
        resume: Use the number that the run was started with, if there is a run.
    """
    if cell.spec.engine.threads is not None:
        return cell.spec.engine.threads
    if resume and (cell.out / SPEC_FILE).exists():
        return int(read_spec(cell.out)["engine"]["threads"])
    return share


def other_length(cell: Cell) -> list[str]:
    """Return in which number of iterations the run in a cell's directory differs, where that matters.

    It does if decisions depend on it (`plans_for_end`): such a run neither stands in for a shorter one, nor
    becomes what a longer one would have been.
    """
    stored, wanted = read_spec(cell.out)["train"]["iterations"], cell.spec.train.iterations
    if stored == wanted or not plans_for_end(cell.spec):
        return []
    return [f"train.iterations is {stored} there, got {wanted}, and what is decided depends on it"]


class _Reporter(Observer):
    """Reports the progress of a cell every `REPORT_SECONDS`."""

    def __init__(self, report: Report) -> None:
        self._report, self._last = report, 0.0

    def iteration(self, progress: Progress, record: Mapping[str, Any]) -> None:
        if (now := time.monotonic()) - self._last > REPORT_SECONDS:
            self._last = now
            self._report(iteration=progress.iteration, accuracy=progress.evaluation.get("test_accuracy"))


def run_cell(
    cell: Cell, share: int, resume: bool, report: Report, on_loaded: Callable[[], object] | None = None
) -> dict[str, Any]:
    """Run a cell in this process, which is its own, and return the final fields of its `Outcome`.

    Args:
        cell: The cell.
        share: Its number of threads, unless `thread_count` finds another.
        resume: Continue the run in its directory, if there is one.
        report: Called with the progress every `REPORT_SECONDS`.
        on_loaded: Called once torch is imported, just before the run starts.
    """
    try:
        from flexfl.sim.run import RunInterruptedError, simulate  # imports torch

        if on_loaded is not None:
            on_loaded()
        engine = cell.spec.engine.model_copy(update={"threads": thread_count(cell, share, resume)})
        spec = cell.spec.model_copy(update={"engine": engine})
        if resume and (cell.out / SPEC_FILE).exists():
            refuse_other_spec(cell.out, other_length(cell))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FlexFLWarning)  # they are in the summary
                summary = simulate(spec, out=cell.out, resume=resume, observers=[_Reporter(report)]).summary
        except RunInterruptedError as stopped:
            return {"state": "stopped", "error": str(stopped)}
        accuracy = summary["test_accuracy"]
        return {"state": "done", "summary": summary, "iteration": summary["iterations"], "accuracy": accuracy}
    except KeyboardInterrupt:
        return {"state": "stopped", "error": ""}
    except FlexFLError as error:
        return {"state": "failed", "error": str(error)}
    except BaseException:
        return {"state": "failed", "error": traceback.format_exc()}
