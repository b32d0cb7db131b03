"""Resources to accuracy: what each group has used until it first reached a test accuracy."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.errors import Fault
from flexfl.report.axes import QUANTITIES, byte_unit
from flexfl.report.curves import mean_and_deviation
from flexfl.report.groups import Group
from flexfl.report.summary import Estimate
from flexfl.results import Run
from flexfl.units import scale_of

RESOURCES = {
    "iteration": "iterations",
    "compute-cost": "computing cost",
    "uplink-cost": "uplink cost",
    "downlink-cost": "downlink cost",
    "uplink-bytes": "bytes up",
    "downlink-bytes": "bytes down",
    "seconds": "seconds",
}
"""The columns of the table: names in `axes.QUANTITIES`, and their headings."""

FILE = "resources.csv"


@dataclass(frozen=True)
class Reached:
    """What one group has used until it first reached one test accuracy.

    Attributes:
        target: The test accuracy.
        label: Label of the group.
        seeds: How many runs of the group have a test accuracy.
        reached: How many of them reach the target; resources are means over these.
        best: The best test accuracy of each run, averaged; None if it was never evaluated.
        resources: By the names of `RESOURCES`; empty if no run reaches the target.
        units: What those with a unit are counted in.
    """

    target: float
    label: str
    seeds: int
    reached: int
    best: Estimate | None
    resources: dict[str, Estimate]
    units: dict[str, str] = field(default_factory=dict)

    @property
    def remark(self) -> str:
        """What a reader must know of this row; empty if every seed reaches the target."""
        if self.best is None:
            return "no test accuracy recorded"
        if not self.reached:
            return f"not reached (best {self.best})"
        return "" if self.reached == self.seeds else f"{self.reached} of {self.seeds} seeds"

    def text(self, name: str) -> str:
        """Return a resource as text, with its unit; "–" if the target was not reached."""
        found = self.resources.get(name)
        if found is None or not np.isfinite(found.mean):
            return "–"
        size, unit = self._scale(name, found.mean)
        return f"{found.times(1 / size)} {unit}".strip()

    def mean_text(self, name: str) -> str:
        """Return the mean of a resource as text, without its deviation."""
        found = self.resources.get(name)
        if found is None or not np.isfinite(found.mean):
            return "–"
        size, unit = self._scale(name, found.mean)
        value = found.mean / size
        return f"{value:.0f} {unit}".strip() if value >= 100 else f"{value:.3g} {unit}".strip()

    def _scale(self, name: str, value: float) -> tuple[float, str]:
        """Return in what a resource is shown: how many basic units it has, and its name."""
        return byte_unit(value) if name.endswith("bytes") else scale_of(value, self.units.get(name, ""))

    def plain(self) -> dict[str, Any]:
        """Return the row as plain data: means and deviations, None where the target was not reached."""
        row: dict[str, Any] = {"group": self.label, "target": self.target, "seeds": self.seeds}
        row |= {"seeds_that_reach": self.reached, "best_accuracy": self.best and _digits(self.best.mean)}
        for name in RESOURCES:
            key = "iterations" if name == "iteration" else name.replace("-", "_")
            found = self.resources.get(name)
            row[key] = found and _digits(found.mean)
            row[f"{key}_deviation"] = found and _digits(found.deviation)
        return row


def target_faults(targets: Sequence[float]) -> list[Fault]:
    """Return a fault for each target that is not a test accuracy in (0, 1]."""
    rule = "must be a test accuracy in (0, 1]"
    return [
        Fault("target", rule, target, f"give {target / 100:g}" if 1 < target <= 100 else "for example 0.8")
        for target in targets
        if not 0 < target <= 1
    ]


def first_reaching(run: Run, target: float) -> int | None:
    """Return the position of the first evaluation with at least this test accuracy; None if there is none."""
    met = np.flatnonzero(run.evaluations["test_accuracy"] >= target)
    return int(met[0]) if len(met) else None


def resources_to(groups: Sequence[Group], targets: Sequence[float]) -> list[Reached]:
    """Return a row for each target and group.

    A target counts as reached at the first evaluation whose test accuracy is at least as high.
    """
    return [_reached(group, target) for target in dict.fromkeys(targets) for group in groups]


def _reached(group: Group, target: float) -> Reached:
    runs = [run for run in group.runs if np.isfinite(run.evaluations["test_accuracy"]).any()]
    best = [float(np.nanmax(run.evaluations["test_accuracy"])) for run in runs]
    met = [(run, place) for run in runs if (place := first_reaching(run, target)) is not None]
    resources = {
        name: estimate([float(QUANTITIES[name].at_evaluations(run)[place]) for run, place in met])
        for name in (RESOURCES if met else ())
    }
    units = {f"{knob}-cost": unit for knob, unit in group.runs[0].units.items()}
    mean_best = estimate(best) if best else None
    return Reached(target, group.label, len(runs), len(met), mean_best, resources, units)


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and deviation over seeds."""
    mean, deviation = mean_and_deviation(np.asarray(values, dtype=float))
    return Estimate(float(mean), None if deviation is None else float(deviation))


def _digits(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows of plain data as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
