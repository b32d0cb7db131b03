"""Parallel runs on a Ray cluster, each a task in its own worker process."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flexfl.experiments.cell import REPORT_SECONDS, Cell, OnOutcome, Outcome, outcome_updater, run_cell
from flexfl.experiments.ray_cluster import StorageMarkers, cluster, task_resources
from flexfl.results.run import SPEC_FILE
from flexfl.sim.process import stop_signals

_BOARD_TIMEOUT = 5.0


def run_cells_on_ray(
    cells: Sequence[Cell],
    *,
    cpus: int | None = None,
    resume: bool = False,
    on_change: OnOutcome | None = None,
) -> list[Outcome]:
    """Run all cells as tasks on Ray; as with `run_cells`, one that fails does not stop the others.

    The cluster is the one that this process has joined, else the one of RAY_ADDRESS, else a new one
    on this machine, which is shut down afterwards.

    A task requests as many CPUs as its spec has threads, else one CPU, and runs with that many
    threads; it requests a GPU if its device is cuda. The run directories must be on storage that all
    nodes share under the same path: results are read there, and another node can resume a run. The
    same holds for files that specs name by relative paths.

    If a worker is lost (node gone, out of memory), its cell is retried once on another, from the last
    checkpoint; the second time it has failed. Ctrl-C and SIGTERM stop all runs so that they can be
    resumed.

    Args:
        cells: The runs to do.
        cpus: CPUs of a new cluster; by default all.
        resume: Continue runs that exist already.
        on_change: Called with an outcome whenever it changes.

    Returns:
        The outcomes, in the order of `cells`.
    """
    outcomes = [Outcome(cell) for cell in cells]
    update = outcome_updater(outcomes, on_change)
    with stop_signals() as stop, cluster(cpus) as ray, StorageMarkers() as markers:
        running = _RunningTasks(ray, update)
        try:
            for number, cell in enumerate(cells):
                if stop.is_set():
                    break
                out = cell.out.absolute()
                fresh = not (out / SPEC_FILE).exists()
                try:
                    marker = markers.above(out)
                except OSError as error:
                    reason = f"{out} cannot be created ({error.strerror}); choose another out=…"
                    update(number, state="failed", error=reason)
                    continue
                running.start(_Task(number, replace(cell, out=out), resume, fresh, marker, Path.cwd()))
            while running.tasks:
                if stop.is_set() and not running.stopping:
                    running.stop()
                running.poll()
        finally:
            if running.tasks:  # only after an unexpected error in this process
                running.stop()
                ray.wait(list(running.tasks), num_returns=len(running.tasks))
    for number, outcome in enumerate(outcomes):
        if outcome.state == "waiting":
            update(number, state="stopped")
    return outcomes


@dataclass(frozen=True)
class _Task:
    """A cell as it is sent to a node."""

    number: int
    cell: Cell
    resume: bool
    fresh: bool
    """Whether the directory held no run at first, so that a run found there later is this one."""
    marker: Path
    folder: Path
    retried: bool = False
    """Whether it has lost a worker already."""


class _RunningTasks:
    """The tasks that have not ended."""

    def __init__(self, ray: Any, update: Any) -> None:
        self.tasks: dict[Any, _Task] = {}
        self.stopping = False
        self._ray, self._update = ray, update
        self._board, self._nodes = _create_board(ray), ray.nodes()
        # A new worker for each run, as in `run_cells`; no retries by Ray, which would not be reported.
        self._run = ray.remote(max_calls=1, max_retries=0)(_run_task)
        errors = ray.exceptions
        self._worker_lost = errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError

    def start(self, task: _Task) -> None:
        """Submit a task to Ray."""
        resources = task_resources(task.cell, task.resume, self._nodes)
        run = self._run.options(name=task.cell.name, **resources)
        self.tasks[run.remote(task, self._board)] = task

    def stop(self) -> None:
        """Interrupt all workers as Ctrl-C does: after the current iteration, the second time at once."""
        self.stopping = True
        for reference in self.tasks:
            self._ray.cancel(reference)

    def poll(self) -> None:
        """Wait up to `REPORT_SECONDS` for tasks to end, and update the outcomes."""
        ended, _ = self._ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=REPORT_SECONDS)
        with suppress(self._ray.exceptions.RayError):  # without the board only progress is lost
            reports = self._ray.get(self._board.collect.remote(), timeout=_BOARD_TIMEOUT)
            for task in self.tasks.values():
                if task.number in reports:
                    self._update(task.number, **reports[task.number])
        for reference in ended:
            self._end(self.tasks.pop(reference), reference)

    def _end(self, task: _Task, reference: Any) -> None:
        errors = self._ray.exceptions
        try:
            ending = {"error": ""} | self._ray.get(reference)
        except errors.TaskCancelledError:
            ending = {"state": "stopped"}
        except self._worker_lost as error:
            if not (self.stopping or task.retried):
                reason = f"its worker was lost, retrying on another: {error}"
                self._update(task.number, state="waiting", error=reason)
                self.start(replace(task, resume=task.resume or task.fresh, retried=True))
                return
            ending = self._aborted(f"its worker was lost{', for the second time' * task.retried}: {error}")
        except errors.RayError as error:  # not from the run: flexfl cannot be imported there, for example
            ending = self._aborted(str(error))
        self._update(task.number, **ending)

    def _aborted(self, error: str) -> dict[str, str]:
        """Return the outcome of a task that ended without returning one."""
        return {"state": "stopped" if self.stopping else "failed", "error": error}


def _create_board(ray: Any) -> Any:
    """Return an actor that collects progress reports of the runs until they are fetched."""

    class Board:  # a local class is pickled by value: its process needs no flexfl, thus no torch
        def __init__(self) -> None:
            self.reports: dict[int, dict[str, Any]] = {}

        def publish(self, number: int, changes: dict[str, Any]) -> None:
            self.reports.setdefault(number, {}).update(changes)

        def collect(self) -> dict[int, dict[str, Any]]:
            reports, self.reports = self.reports, {}
            return reports

    return ray.remote(num_cpus=0)(Board).remote()


def _run_task(task: _Task, board: Any) -> dict[str, Any]:
    """Run a task in a worker, and return the final fields of its outcome."""
    if not task.marker.exists():
        rule = f"{task.marker.parent} is not the same folder on the node {socket.gethostname()}"
        remedy = "run directories must be on storage that all nodes share; choose another out=…"
        return {"state": "failed", "error": f"{rule}; {remedy}"}
    with suppress(OSError):  # where relative paths and modules of the spec are found
        os.chdir(task.folder)

    def report(**changes: Any) -> None:
        board.publish.remote(task.number, changes)

    # Ctrl-C is delayed while torch is imported: an interrupted import leaves modules half initialised.
    with ExitStack() as loading:
        stop = loading.enter_context(stop_signals())

        def on_loaded() -> None:
            loading.close()
            if stop.is_set():
                raise KeyboardInterrupt

        report(state="running")
        return run_cell(task.cell, 1, task.resume, report, on_loaded)
