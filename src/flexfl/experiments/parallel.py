"""Parallel runs on this machine, each in its own process with its share of the cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from flexfl.experiments.cell import REPORT_SECONDS, Cell, OnOutcome, Outcome, outcome_updater, run_cell
from flexfl.sim.process import stop_signals


def run_cells(
    cells: Sequence[Cell], *, jobs: int, resume: bool = False, on_change: OnOutcome | None = None
) -> list[Outcome]:
    """Run all cells, `jobs` at a time; one that fails does not stop the others.

    Ctrl-C and SIGTERM stop all runs so that they can be resumed.

    Args:
        cells: The runs to do.
        jobs: How many at a time; each has its share of the cores, unless its spec sets the threads.
        resume: Continue runs that exist already.
        on_change: Called with an outcome whenever it changes.

    Returns:
        The outcomes, in the order of `cells`.
    """
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    outcomes = [Outcome(cell) for cell in cells]
    waiting = list(range(len(cells)))
    running: dict[int, tuple[Any, Connection]] = {}
    update = outcome_updater(outcomes, on_change)
    share = max(1, (os.cpu_count() or 1) // max(1, min(jobs, len(cells))))
    with stop_signals() as stop:
        stopping = False
        try:
            while waiting or running:
                if stop.is_set() and not stopping:
                    stopping, waiting = True, []
                    for process, _ in running.values():  # Ctrl-C reached them already, SIGTERM did not
                        process.terminate()
                while waiting and len(running) < jobs:
                    number = waiting.pop(0)
                    reader, writer = context.Pipe(duplex=False)
                    arguments = (cells[number], share, resume, writer)
                    process = context.Process(target=_run, args=arguments, name=cells[number].name)
                    with _block_sigint():
                        process.start()
                    writer.close()  # only the child keeps it open: the pipe ends when the child does
                    running[number] = process, reader
                    update(number, state="running")
                wait([reader for _, reader in running.values()], timeout=REPORT_SECONDS)
                for number, (process, reader) in list(running.items()):
                    if _forward_reports(reader, number, update):
                        continue
                    process.join()
                    del running[number]
                    if outcomes[number].state == "running":  # it ended without reporting an outcome
                        state, code = "stopped" if stopping else "failed", process.exitcode
                        update(number, state=state, error=f"the process ended with code {code}")
        finally:
            for process, _ in running.values():  # only after an unexpected error in this process
                process.terminate()
                process.join()
    for number, outcome in enumerate(outcomes):
        if outcome.state == "waiting":
            update(number, state="stopped")
    return outcomes


@contextmanager
def _block_sigint() -> Iterator[None]:
    """Block SIGINT; a process started meanwhile inherits this until it unblocks SIGINT itself."""
    resource_tracker.ensure_running()  # starting it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward_reports(reader: Connection, number: int, update: Callable[..., None]) -> bool:
    """Apply all pending reports of a run; return whether its pipe is still open."""
    try:
        while reader.poll():
            update(number, **reader.recv())
    except EOFError:
        return False
    return True


def _run(cell: Cell, share: int, resume: bool, pipe: Connection) -> None:
    """Run a cell in the new process; SIGINT is unblocked once torch is imported."""

    def report(**changes: Any) -> None:
        with suppress(OSError):  # the parent is gone; the run continues
            pipe.send(changes)

    def unblock_sigint() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    report(**run_cell(cell, share, resume, report, unblock_sigint))
