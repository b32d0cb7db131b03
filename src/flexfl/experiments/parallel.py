"""Several runs at once, each in a process of its own, sharing the cores without crowding them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from flexfl.experiments.cell import TELL_SECONDS, Cell, OnOutcome, Outcome, noter, perform
from flexfl.sim.process import stop_signals


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
    note = noter(outcomes, on_change)
    share = max(1, (os.cpu_count() or 1) // max(1, min(jobs, len(cells))))
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
                wait([hear for _, hear in running.values()], timeout=TELL_SECONDS)
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
    """In the new process: one run; Ctrl-C, which waits while torch loads, gets through once it is there."""

    def tell(**changes: Any) -> None:
        with suppress(OSError):  # whoever asked is gone; the run goes on
            pipe.send(changes)

    def ready() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    tell(**perform(cell, share, resume, tell, ready))
