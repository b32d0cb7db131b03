"""Several runs at once, each in a process of its own, sharing the cores without crowding them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from flexfl.errors import FlexFLError
from flexfl.results.run import SPEC_FILE, read_spec
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
    outcomes = [Outcome(cell) for cell in cells]
    waiting = list(range(len(cells)))
    running: dict[int, tuple[Any, Connection]] = {}
    share = max(1, (os.cpu_count() or 1) // max(1, min(jobs, len(cells))))

    def note(number: int, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(outcomes[number], name, value)
        if on_change is not None:
            on_change(outcomes[number])

    with stop_signals() as stop:
        asked = False
        try:
            while waiting or running:
                if stop.is_set() and not asked:
                    asked, waiting = True, []
                    for process, _ in running.values():  # Ctrl-C reached them already, SIGTERM did not
                        process.terminate()
                while waiting and len(running) < jobs:
                    number = waiting.pop(0)
                    hear, tell = context.Pipe(duplex=False)
                    arguments = (cells[number], share, resume, tell)
                    process = context.Process(target=_run, args=arguments, name=cells[number].name)
                    with _ctrl_c_later():
                        process.start()
                    tell.close()  # the child's end: when it goes, the pipe ends
                    running[number] = process, hear
                    note(number, state="running")
                wait([hear for _, hear in running.values()], timeout=_TELL_SECONDS)
                for number, (process, hear) in list(running.items()):
                    if _heard(hear, number, note):
                        continue
                    process.join()
                    del running[number]
                    if outcomes[number].state == "running":  # it had no time to say anything
                        state, code = "stopped" if asked else "failed", process.exitcode
                        note(number, state=state, error=f"the process ended with code {code}")
        finally:
            for process, _ in running.values():  # only if something went wrong here
                process.terminate()
                process.join()
    for number, outcome in enumerate(outcomes):
        if outcome.state == "waiting":
            note(number, state="stopped")
    return outcomes


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Ctrl-C waits; in a process that starts here until it says that it is ready."""
    resource_tracker.ensure_running()  # it would let Ctrl-C through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _heard(hear: Connection, number: int, note: Callable[..., None]) -> bool:
    """Pass on what a run had to tell; whether it may have more to say."""
    try:
        while hear.poll():
            note(number, **hear.recv())
    except EOFError:
        return False
    return True


def _run(cell: Cell, share: int, resume: bool, pipe: Connection) -> None:
    """In the new process: one run, told about now and then."""
    told = 0.0

    def tell(**changes: Any) -> None:
        with suppress(OSError):  # whoever asked is gone; the run goes on
            pipe.send(changes)

    def on_progress(progress: Any) -> None:
        nonlocal told
        if (now := time.monotonic()) - told > _TELL_SECONDS:
            told = now
            tell(iteration=progress.iteration, accuracy=progress.evaluation.get("test_accuracy"))

    try:
        from flexfl.sim.run import RunInterruptedError, simulate  # torch, only here

        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        spec = cell.spec
        if spec.engine.threads is None:
            if resume and (cell.out / SPEC_FILE).exists():  # what it began with, whatever --jobs was then
                share = read_spec(cell.out)["engine"]["threads"]
            spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"threads": share})})
        summary = simulate(spec, out=cell.out, resume=resume, on_progress=on_progress).summary
        accuracy = summary["test_accuracy"]
        tell(state="done", summary=summary, iteration=summary["iterations"], accuracy=accuracy)
    except (RunInterruptedError, KeyboardInterrupt) as stopped:
        tell(state="stopped", error=str(stopped))
    except FlexFLError as error:
        tell(state="failed", error=str(error))
    except BaseException:
        tell(state="failed", error=traceback.format_exc())
