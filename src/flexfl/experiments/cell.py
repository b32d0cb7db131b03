"""One run of many: what is asked for, what became of it, and the work itself."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfl.errors import FlexFLError
from flexfl.results.run import SPEC_FILE, read_spec
from flexfl.spec.schema import Spec

TELL_SECONDS = 0.2
"""How often a run tells of itself, and how often one listens."""


@dataclass(frozen=True)
class Cell:
    """One run to make."""

    name: str
    spec: Spec
    out: Path


@dataclass
class Outcome:
    """What became of a cell; told again and again while it runs."""

    cell: Cell
    state: str = "waiting"
    """waiting, running, done, stopped (it can be resumed) or failed."""
    iteration: int = 0
    accuracy: float | None = None
    summary: dict[str, Any] | None = None
    error: str = ""


OnOutcome = Callable[[Outcome], None]
Tell = Callable[..., None]
"""Takes fields of an `Outcome` that have changed, as keywords."""


def noter(outcomes: Sequence[Outcome], on_change: OnOutcome | None) -> Callable[..., None]:
    """A function that takes the number of an outcome and what changed in it, and passes that on."""

    def note(number: int, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(outcomes[number], name, value)
        if on_change is not None:
            on_change(outcomes[number])

    return note


def threads_of(cell: Cell, share: int, resume: bool) -> int:
    """What its spec asks for; of a run that goes on, what it began with; its share otherwise."""
    if cell.spec.engine.threads is not None:
        return cell.spec.engine.threads
    if resume and (cell.out / SPEC_FILE).exists():
        return int(read_spec(cell.out)["engine"]["threads"])
    return share


def perform(
    cell: Cell, share: int, resume: bool, tell: Tell, loaded: Callable[[], object] | None = None
) -> dict[str, Any]:
    """In the process that is there for it: one run, told about now and then; returns how it ended.

    loaded  called once torch is there, just before the work
    """
    told = 0.0

    def on_progress(progress: Any) -> None:
        nonlocal told
        if (now := time.monotonic()) - told > TELL_SECONDS:
            told = now
            tell(iteration=progress.iteration, accuracy=progress.evaluation.get("test_accuracy"))

    try:
        from flexfl.sim.run import RunInterruptedError, simulate  # torch, only here

        if loaded is not None:
            loaded()
        engine = cell.spec.engine.model_copy(update={"threads": threads_of(cell, share, resume)})
        spec = cell.spec.model_copy(update={"engine": engine})
        try:
            summary = simulate(spec, out=cell.out, resume=resume, on_progress=on_progress).summary
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
