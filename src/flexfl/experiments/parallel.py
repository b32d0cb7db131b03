"""Several runs at once, each in a process of its own, sharing the cores without crowding them."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfl.errors import FlexFLError
from flexfl.sim.process import stop_signals
from flexfl.spec.schema import Spec

_TELL_SECONDS = 0.2


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


def run_cells(
    cells: Sequence[Cell], *, jobs: int, resume: bool = False, on_change: OnOutcome | None = None
) -> list[Outcome]:
    """Run all cells, `jobs` at a time; one that fails does not stop the others.

    Each has its share of the cores, unless its spec asks for a number of threads. Ctrl-C and
    SIGTERM stop all of them where they can be resumed.
    """
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    messages: Any = context.Queue()
    outcomes = [Outcome(cell) for cell in cells]
    waiting = list(range(len(cells)))
    running: dict[int, Any] = {}
    share = max(1, (os.cpu_count() or 1) // jobs)

    def note(number: int, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(outcomes[number], name, value)
        if on_change is not None:
            on_change(outcomes[number])

    with stop_signals() as stop:
        asked = False
        while waiting or running:
            if stop.is_set() and not asked:
                asked, waiting = True, []
                for process in running.values():  # Ctrl-C reached them already, SIGTERM did not
                    if process.pid is not None:
                        os.kill(process.pid, signal.SIGTERM)
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                arguments = (number, cells[number], share, resume, messages)
                process = context.Process(target=_run, args=arguments, name=cells[number].name)
                process.start()
                running[number] = process
                note(number, state="running")
            _hear(messages, note)
            for number in [n for n, process in running.items() if not process.is_alive()]:
                process = running.pop(number)
                process.join()
                _hear(messages, note)
                if outcomes[number].state == "running":  # it had no time to say anything
                    state, code = "stopped" if asked else "failed", process.exitcode
                    note(number, state=state, error=f"the process ended with code {code}")
    for number, outcome in enumerate(outcomes):
        if outcome.state == "waiting":
            note(number, state="stopped")
    return outcomes


def _hear(messages: Any, note: Callable[..., None]) -> None:
    """Pass on what the runs had to tell, waiting a moment for the first word."""
    wait = _TELL_SECONDS
    while True:
        try:
            number, changes = messages.get(timeout=wait)
        except queue.Empty:
            return
        note(number, **changes)
        wait = 0.0


def _run(number: int, cell: Cell, share: int, resume: bool, messages: Any) -> None:
    """In the new process: one run, told about now and then."""
    from flexfl.sim.run import RunInterruptedError, simulate  # torch, only here

    told = 0.0

    def tell(progress: Any) -> None:
        nonlocal told
        if (now := time.monotonic()) - told > _TELL_SECONDS:
            told = now
            accuracy = progress.evaluation.get("test_accuracy")
            messages.put((number, {"iteration": progress.iteration, "accuracy": accuracy}))

    spec = cell.spec
    if spec.engine.threads is None:
        spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"threads": share})})
    try:
        result = simulate(spec, out=cell.out, resume=resume, on_progress=tell)
        done = {"state": "done", "summary": result.summary, "iteration": result.summary["iterations"]}
        messages.put((number, done | {"accuracy": result.summary["test_accuracy"]}))
    except RunInterruptedError as stopped:
        messages.put((number, {"state": "stopped", "error": str(stopped)}))
    except FlexFLError as error:
        messages.put((number, {"state": "failed", "error": str(error)}))
    except BaseException:
        messages.put((number, {"state": "failed", "error": traceback.format_exc()}))
    finally:
        messages.close()
        messages.join_thread()
