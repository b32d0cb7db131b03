"""The observer that writes a run directory, for simulations and deployments alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.results.directory import RunDirectory
from flexfl.results.observer import Observer
from flexfl.results.progress import Progress


class DirectoryWriter(Observer):
    """Write iterations, evaluations, checkpoints and the summary of a run to its directory.

    Rows are buffered and written together: with each checkpoint, by `commit`, and every `commit_every`
    seconds. A run calls it like any other observer; what only the directory can do stands beside:

        writer = DirectoryWriter(directory, by_client=True)
        …                                         # begin, iteration, evaluated, checkpoint
        summary = writer.summarise(progress)      # commits, and reads what was written
        observers.end(progress, summary)          # writes summary.json

    Args:
        directory: open for this run.
        by_client: record each client's numbers, too.
        commit_every: seconds between two commits besides; ∞ for none. Rows past the last checkpoint are for
            those who look on: `RunDirectory.last_state` forgets them.
    """

    def __init__(self, directory: RunDirectory, by_client: bool, commit_every: float = 2.0) -> None:
        self._directory, self._by_client, self._commit_every = directory, by_client, commit_every
        self._committed = time.monotonic()

    def iteration(self, progress: Progress, record: Mapping[str, Any]) -> None:
        self._directory.store.add_iteration(record)
        if time.monotonic() - self._committed > self._commit_every:
            self.commit()

    def evaluated(self, progress: Progress, metrics: Mapping[str, float | None]) -> None:
        row = {"seconds": progress.seconds, **metrics}
        self._directory.store.add_evaluation(progress.iteration, row)

    def checkpoint(self, progress: Progress, state: Mapping[str, NDArray[Any]]) -> None:
        """Write the state, with the seconds of training so far as "seconds", (1,)."""
        arrays = {**state, "seconds": np.array([progress.seconds])}
        self._directory.checkpoint(progress.iteration, arrays, by_client=self._by_client)
        self._committed = time.monotonic()

    def end(self, progress: Progress, summary: Mapping[str, Any]) -> None:
        self.commit()
        self._directory.write_summary(summary)

    def commit(self) -> None:
        """Write what is buffered; when it returns, it is on the disk."""
        self._directory.store.commit(by_client=self._by_client)
        self._committed = time.monotonic()

    def summarise(self, progress: Progress, **more: Any) -> dict[str, Any]:
        """Commit, and return the summary of the run so far, with `more` in it, to be passed to `end`."""
        self.commit()
        return self._directory.summarise(progress.seconds) | more
