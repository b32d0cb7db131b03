"""The numbers behind the curves' ends: what a table says of each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.curves import aligned, mean_and_deviation
from flexfl.report.groups import Group
from flexfl.results import Run

# Sums of floats: a budget that is met to the digit is met.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and sample standard deviation, None for one seed."""

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        if self.deviation is None:
            return f"{self.mean:.4g}"
        # Two digits of the deviation are all that the mean can claim, four of the mean all one reads.
        decimals = min(2 - _magnitude(self.deviation), 4 - _magnitude(self.mean))
        places = int(np.clip(decimals, 0, 9))
        return f"{self.mean:.{places}f} ± {self.deviation:.{places}f}"


@dataclass(frozen=True)
class Spent:
    """An average cost beside its budget; `within` says for each seed whether it was kept."""

    average: Estimate
    budget: float | None
    within: tuple[bool, ...]


@dataclass(frozen=True)
class Row:
    """One group in the table; None where nothing was recorded."""

    group: Group
    train_loss: Estimate | None
    test_accuracy: Estimate | None
    costs: dict[str, Spent | None]
    seconds: Estimate | None


def row_of(group: Group) -> Row:
    """What `group` reached at the end of the iterations that its runs have in common."""
    return Row(
        group,
        _last(_evaluated(group, "train_loss")),
        _last(_evaluated(group, "test_accuracy")),
        {knob: _spent(group, knob) for knob in KNOBS},
        _last(np.array([[_seconds(run)] for run in group.runs])),
    )


def notes_of(group: Group) -> list[str]:
    """What makes a group's curves less than its seeds promise."""
    notes = []
    idle = [str(run.seed) for run in group.runs if run not in group.started]
    if idle:
        notes.append(f"nothing recorded yet for seed {', '.join(idle)}")
    counts = sorted({len(run.iterations["iteration"]) for run in group.started})
    if len(counts) > 1:
        listed = ", ".join(str(count) for count in counts)
        notes.append(f"runs have {listed} iterations: cut to the first {counts[0]}")
    seeds = [run.seed for run in group.runs]
    if len(set(seeds)) < len(seeds):
        notes.append("a seed occurs more than once: the deviation is too small")
    return notes


def _magnitude(value: float) -> int:
    """How many digits stand before the point; below one, minus the zeros behind it."""
    return int(np.floor(np.log10(abs(value)))) + 1 if value else 0


def _evaluated(group: Group, column: str) -> FloatArray:
    return aligned([(run.evaluations["iteration"], run.evaluations[column]) for run in group.runs])[1]


def _last(values: FloatArray) -> Estimate | None:
    """Of the last column of (S, P)."""
    if not values.size or not np.isfinite(values[:, -1]).all():
        return None
    mean, deviation = mean_and_deviation(values[:, -1])
    return Estimate(float(mean), None if deviation is None else float(deviation))


def _spent(group: Group, knob: str) -> Spent | None:
    values = aligned([(run.iterations["iteration"], run.average_cost(knob)) for run in group.runs])[1]
    average = _last(values)
    if average is None:
        return None
    budget = group.budget(knob)
    limit = np.inf if budget is None else budget * (1 + _ROUNDING)
    return Spent(average, budget, tuple(bool(spent <= limit) for spent in values[:, -1]))


def _seconds(run: Run) -> float:
    """Of the whole run; up to the last evaluation if it is unfinished."""
    if run.summary is not None:
        return float(run.summary["seconds"])
    recorded = run.evaluations["seconds"]
    return float(recorded[-1]) if len(recorded) else np.nan
