"""Several runs at once on a Ray cluster, each a task in a process of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flexfl.experiments.cell import TELL_SECONDS, Cell, OnOutcome, Outcome, noter, perform
from flexfl.experiments.ray_cluster import Marks, cluster, needs
from flexfl.results.run import SPEC_FILE
from flexfl.sim.process import stop_signals

_HEAR_SECONDS = 5.0


def run_cells_on_ray(
    cells: Sequence[Cell],
    *,
    cpus: int | None = None,
    resume: bool = False,
    on_change: OnOutcome | None = None,
) -> list[Outcome]:
    """Run all cells as tasks on Ray; as with `run_cells`, one that fails does not stop the others.

    The cluster is the one that this process has joined, else the one of RAY_ADDRESS, else one on
    this machine alone, with `cpus` CPUs (by default, all), which ends afterwards.

    A task asks for as many CPUs as its spec has threads, or for one, which is then its number of
    threads; and for a GPU if its device is cuda. The run directories must lie on storage that all
    nodes share under the same path: results are read there, and another node can go on with a run.
    So must what specs name by relative paths.

    A cell whose worker is lost (node gone, memory exhausted) goes on once in another, from its last
    checkpoint; the second time it has failed. Ctrl-C and SIGTERM stop all of them where they can be
    resumed.
    """
    outcomes = [Outcome(cell) for cell in cells]
    note = noter(outcomes, on_change)
    with stop_signals() as stop, cluster(cpus) as ray, Marks() as marks:
        sweep = _Sweep(ray, note)
        try:
            for number, cell in enumerate(cells):
                if stop.is_set():
                    break
                out = cell.out.absolute()
                fresh = not (out / SPEC_FILE).exists()
                try:
                    mark = marks.above(out)
                except OSError as error:
                    told = f"{out} cannot be made ({error.strerror}); choose another --out"
                    note(number, state="failed", error=told)
                    continue
                sweep.start(_Task(number, replace(cell, out=out), resume, fresh, mark, Path.cwd()))
            while sweep.tasks:
                if stop.is_set() and not sweep.stopping:
                    sweep.stop()
                sweep.listen()
        finally:
            if sweep.tasks:  # only if something went wrong here
                sweep.stop()
                ray.wait(list(sweep.tasks), num_returns=len(sweep.tasks))
    for number, outcome in enumerate(outcomes):
        if outcome.state == "waiting":
            note(number, state="stopped")
    return outcomes


@dataclass(frozen=True)
class _Task:
    """A cell as it goes to a node."""

    number: int
    cell: Cell
    resume: bool
    fresh: bool
    """Whether there was no run before, so that whatever lies there later is this one's."""
    mark: Path
    folder: Path
    lost: bool = False
    """Whether it has lost a worker already."""


class _Sweep:
    """The tasks under way."""

    def __init__(self, ray: Any, note: Any) -> None:
        self.tasks: dict[Any, _Task] = {}
        self.stopping = False
        self._ray, self._note = ray, note
        self._board, self._nodes = _board(ray), ray.nodes()
        # A worker for each run, as `run_cells` has it; and Ray itself would try again unseen.
        self._run = ray.remote(max_calls=1, max_retries=0)(_run)
        errors = ray.exceptions
        self._worker_lost = errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError

    def start(self, task: _Task) -> None:
        run = self._run.options(name=task.cell.name, **needs(task.cell, task.resume, self._nodes))
        self.tasks[run.remote(task, self._board)] = task

    def stop(self) -> None:
        """As Ctrl-C in each worker: after the iteration under way, the second time at once."""
        self.stopping = True
        for reference in self.tasks:
            self._ray.cancel(reference)

    def listen(self) -> None:
        """Wait a moment, and note what is new."""
        ended, _ = self._ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=TELL_SECONDS)
        with suppress(self._ray.exceptions.RayError):  # a lost board costs the progress, not the runs
            told = self._ray.get(self._board.hear.remote(), timeout=_HEAR_SECONDS)
            for task in self.tasks.values():
                if task.number in told:
                    self._note(task.number, **told[task.number])
        for reference in ended:
            self._end(self.tasks.pop(reference), reference)

    def _end(self, task: _Task, reference: Any) -> None:
        errors = self._ray.exceptions
        try:
            ending = {"error": ""} | self._ray.get(reference)
        except errors.TaskCancelledError:
            ending = {"state": "stopped"}
        except self._worker_lost as error:
            if not (self.stopping or task.lost):
                told = f"its worker was lost, another goes on: {error}"
                self._note(task.number, state="waiting", error=told)
                self.start(replace(task, resume=task.resume or task.fresh, lost=True))
                return
            ending = self._unsaid(f"its worker was lost{', for the second time' * task.lost}: {error}")
        except errors.RayError as error:  # not from the run: flexfl cannot be imported there, for example
            ending = self._unsaid(str(error))
        self._note(task.number, **ending)

    def _unsaid(self, error: str) -> dict[str, str]:
        """How a task ended that had no time to say anything."""
        return {"state": "stopped" if self.stopping else "failed", "error": error}


def _board(ray: Any) -> Any:
    """Where runs write their progress, which is read here; for each only what is new."""

    class Board:  # inside a function it travels whole, and its process needs no flexfl, thus no torch
        def __init__(self) -> None:
            self.told: dict[int, dict[str, Any]] = {}

        def tell(self, number: int, changes: dict[str, Any]) -> None:
            self.told.setdefault(number, {}).update(changes)

        def hear(self) -> dict[int, dict[str, Any]]:
            told, self.told = self.told, {}
            return told

    return ray.remote(num_cpus=0)(Board).remote()


def _run(task: _Task, board: Any) -> dict[str, Any]:
    """In a worker: one run; returns how it ended."""
    if not task.mark.exists():
        told = f"{task.mark.parent} is not the same folder on the node {socket.gethostname()}"
        remedy = "run directories must lie on storage that all nodes share; choose another --out"
        return {"state": "failed", "error": f"{told}; {remedy}"}
    with suppress(OSError):  # where relative paths and modules of the spec are found
        os.chdir(task.folder)

    def tell(**changes: Any) -> None:
        board.tell.remote(task.number, changes)

    with (
        ExitStack() as loading
    ):  # Ctrl-C waits meanwhile: an import that breaks off can leave anything behind
        stop = loading.enter_context(stop_signals())

        def loaded() -> None:
            loading.close()
            if stop.is_set():
                raise KeyboardInterrupt

        tell(state="running")
        return perform(task.cell, 1, task.resume, tell, loaded)
