"""An observer of one's own: a log of evaluations, and a warning when spending runs ahead of a budget.

[track.log]
kind = "examples.own_observer:SpendingLog"
path = "spending.log"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexfl import Observer
from flexfl.results.observer import Progress, RunInfo


@dataclass
class SpendingLog(Observer):
    """Write a line for each evaluation; `path` is relative to the run directory."""

    path: str = "spending.log"
    warn_at: float = 1.1
    iterations: int = field(default=0, init=False)
    _file: Path = field(default=Path(), init=False)

    def begin(self, run: RunInfo) -> None:
        """Open the log; a resumed run continues it."""
        self._file = (run.path or Path()) / self.path
        self._write(f"{'resumed' if run.start else 'begun'} at iteration {run.start} of {run.iterations}")

    def iteration(self, progress: Progress, record: Mapping[str, Any]) -> None:
        """Count what was seen."""
        self.iterations += 1

    def evaluated(self, progress: Progress, metrics: Mapping[str, float | None]) -> None:
        """Write accuracy, and each cost as a share of its budget."""
        shares = {
            knob: spent / budget
            for knob, spent in progress.average_cost.items()
            if (budget := progress.budgets.get(knob)) is not None
        }
        text = "  ".join(f"{knob} {share:.0%}" for knob, share in shares.items())
        over = [knob for knob, share in shares.items() if share > self.warn_at]
        warning = f"  ahead of the budget: {', '.join(over)}" if over else ""
        self._write(f"{progress.iteration}: accuracy {metrics.get('test_accuracy')}  {text}{warning}")

    def end(self, progress: Progress, summary: Mapping[str, Any]) -> None:
        """Close with the number of iterations that were seen."""
        self._write(f"finished after {progress.iteration} iterations, {self.iterations} of them seen here")

    def _write(self, line: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
