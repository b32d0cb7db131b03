"""The summary table of a report: final metrics of each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.curves import align, mean_and_deviation
from flexfl.report.groups import Group
from flexfl.results import Run

# Relative tolerance for rounding errors when a cost is compared with its budget.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """Mean and sample standard deviation over seeds; no deviation for one seed.

    >>> str(Estimate(0.81234, 0.0123))
    '0.812 ± 0.012'
    """

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        if self.deviation is None:
            return f"{self.mean:.4g}"
        # Two significant digits of the deviation, but at most four of the mean.
        decimals = min(2 - _magnitude(self.deviation), 4 - _magnitude(self.mean))
        places = int(np.clip(decimals, 0, 9))
        return f"{self.mean:.{places}f} ± {self.deviation:.{places}f}"


@dataclass(frozen=True)
class AverageCost:
    """An average cost and its budget; `within` says for each seed whether the budget was met."""

    average: Estimate
    budget: float | None
    within: tuple[bool, ...]


@dataclass(frozen=True)
class Row:
    """One group in the table; None for metrics that were not recorded."""

    group: Group
    train_loss: Estimate | None
    test_accuracy: Estimate | None
    costs: dict[str, AverageCost | None]
    seconds: Estimate | None


def row_of(group: Group) -> Row:
    """Return the metrics of a group at the last iteration that all its runs have."""
    return Row(
        group,
        _last(_evaluated(group, "train_loss")),
        _last(_evaluated(group, "test_accuracy")),
        {knob: _spent(group, knob) for knob in KNOBS},
        _last(np.array([[_seconds(run)] for run in group.runs])),
    )


def notes_of(group: Group) -> list[str]:
    """Return warnings about a group's runs: missing, of different length, or with the same seed."""
    notes = []
    idle = [str(run.seed) for run in group.runs if run not in group.started]
    if idle:
        notes.append(f"nothing recorded yet for seed {', '.join(idle)}")
    counts = sorted({len(run.iterations["iteration"]) for run in group.started})
    if len(counts) > 1:
        listed = ", ".join(str(count) for count in counts)
        notes.append(f"runs have {listed} iterations: truncated to the first {counts[0]}")
    notes += dict.fromkeys(note for run in group.runs for note in (run.summary or {}).get("notes", ()))
    seeds = [run.seed for run in group.runs]
    if len(set(seeds)) < len(seeds):
        notes.append("a seed occurs more than once: the deviation is too small")
    return notes


def _magnitude(value: float) -> int:
    """Return the number of digits before the decimal point; for values < 1, minus the zeros after it."""
    return int(np.floor(np.log10(abs(value)))) + 1 if value else 0


def _evaluated(group: Group, column: str) -> FloatArray:
    return align([(run.evaluations["iteration"], run.evaluations[column]) for run in group.runs])[1]


def _last(values: FloatArray) -> Estimate | None:
    """Return the estimate of the last column of (S, P); None if it has no finite value."""
    if not values.size or not np.isfinite(values[:, -1]).all():
        return None
    mean, deviation = mean_and_deviation(values[:, -1])
    return Estimate(float(mean), None if deviation is None else float(deviation))


def _spent(group: Group, knob: str) -> AverageCost | None:
    values = align([(run.iterations["iteration"], run.average_cost(knob)) for run in group.runs])[1]
    average = _last(values)
    if average is None:
        return None
    budget = group.budget(knob)
    limit = np.inf if budget is None else budget * (1 + _ROUNDING)
    return AverageCost(average, budget, tuple(bool(spent <= limit) for spent in values[:, -1]))


def _seconds(run: Run) -> float:
    """Return the seconds of a run; up to the last evaluation if it is unfinished."""
    if run.summary is not None:
        return float(run.summary["seconds"])
    recorded = run.evaluations["seconds"]
    return float(recorded[-1]) if len(recorded) else np.nan
