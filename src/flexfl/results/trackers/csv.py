"""Metrics as a table that grows during a run."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexfl.results.observer import Observer, RunInfo

if TYPE_CHECKING:
    from flexfl.results.observer import Progress


@dataclass
class CsvTracker(Observer):
    """Append a row to a CSV file for each evaluation.

    Attributes:
        path: the file, relative to the run directory, if there is one.
    """

    path: str = "metrics.csv"
    _file: Path = field(default=Path(), init=False, repr=False)

    def begin(self, run: RunInfo) -> None:
        """Start a new file; on resume keep the rows before the iteration that comes next."""
        self._file = Path(self.path) if run.path is None else run.path / self.path
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept: list[list[str]] = []
        if run.start and self._file.exists():
            with self._file.open(newline="", encoding="utf-8") as file:
                header, *rows = list(csv.reader(file)) or [[]]
            kept = [header, *(row for row in rows if row and int(row[0]) < run.start)]
        _write(self._file, kept, "w")

    def evaluated(self, progress: Progress, metrics: Mapping[str, float | None]) -> None:
        """Append the row of this evaluation."""
        row: dict[str, Any] = {
            "iteration": progress.iteration,
            "seconds": round(progress.seconds, 3),
            **metrics,
        }
        rows = [["" if value is None else value for value in row.values()]]
        _write(self._file, rows if self._file.stat().st_size else [list(row), *rows], "a")


def _write(path: Path, rows: Iterable[list[Any]], mode: str) -> None:
    with path.open(mode, newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
