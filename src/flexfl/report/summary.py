"""The summary table of a report: final metrics of each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.curves import align, mean_and_deviation
from flexfl.report.groups import Group
from flexfl.results import Run
from flexfl.results.accounts import share
from flexfl.results.forms import Form, stored_form
from flexfl.units import scale_of, show

# Relative tolerance for rounding errors when a cost is compared with its budget.
_ROUNDING = 1e-9
# Of a client, what it was charged is mentioned if it differs from what it spent by this share of the budget.
_CLOSE = 0.02


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

    def times(self, factor: float) -> Estimate:
        """Return the same in another unit."""
        return Estimate(self.mean * factor, None if self.deviation is None else self.deviation * factor)

    def text(self, unit: str = "") -> str:
        """Return it with its unit.

        >>> Estimate(1930.0, 52.0).text("byte")
        '1.930 ± 0.052 kB'
        """
        if not unit or not np.isfinite(self.mean):
            return str(self)
        size, symbol = scale_of(self.mean, unit)
        return f"{self.times(1 / size)} {symbol}"


@dataclass(frozen=True)
class Worst:
    """The client (or clients with a shared budget) that has spent the largest share of its budget.

    >>> str(Worst("client 3", seed=None, share=1.2, charged=1.0))
    '1.2 × budget (client 3, charged 1 ×)'
    """

    who: str
    seed: int | None
    share: float
    charged: float

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        charged = f", charged {self.charged:.3g} ×" if abs(self.share - self.charged) > _CLOSE else ""
        return f"{self.share:.3g} × budget ({self.who}{seed}{charged})"


@dataclass(frozen=True)
class AverageCost:
    """An average cost and its budget.

    Attributes:
        average: What was spent.
        budget: The mean budget; None for no limit.
        within: For each seed whether the budget was met.
        charged: What was charged; None where it agrees with what was spent.
        charged_within: For each seed whether the budget was met by what was charged.
        worst: Who is worst off, in any of the seeds; None if that is not known.
        form: How it is shown.
        iterations: Over how many the average goes.
    """

    average: Estimate
    budget: float | None
    within: tuple[bool, ...]
    charged: Estimate | None = None
    charged_within: tuple[bool, ...] = ()
    worst: Worst | None = None
    form: Form = field(default_factory=Form)
    iterations: int = 1

    @property
    def spent_text(self) -> str:
        """What was spent, in the budget's form."""
        return self._in_form(self.average)

    @property
    def charged_text(self) -> str:
        """What was charged, in the budget's form; "" where it agrees with what was spent."""
        return "" if self.charged is None else self._in_form(self.charged)

    @property
    def budget_text(self) -> str:
        """The budget with its unit and what it is for; a plain number for abstract costs."""
        return f"{self.budget:g}" if self.form.is_plain else self.form.limit_text

    def _in_form(self, average: Estimate) -> str:
        text = average.times(self.form.factor(self.iterations, self.budget)).text(self.form.unit)
        return text if self.form.is_plain or self.budget is not None else text + self.form.period


@dataclass(frozen=True)
class Row:
    """One group in the table; None for metrics that were not recorded."""

    group: Group
    train_loss: Estimate | None
    test_accuracy: Estimate | None
    average_test_accuracy: Estimate | None
    costs: dict[str, AverageCost | None]
    seconds: Estimate | None


def row_of(group: Group) -> Row:
    """Return the metrics of a group at the last iteration that all its runs have."""
    return Row(
        group,
        _last(_evaluated(group, "train_loss")),
        _last(_evaluated(group, "test_accuracy")),
        _last(_evaluated(group, "average_test_accuracy")),
        {knob: _spent(group, knob) for knob in KNOBS},
        _last(np.array([[_seconds(run)] for run in group.runs])),
    )


def worst_of(group: Group, knob: str) -> Worst | None:
    """Return who has spent the largest share of its budget, in any run; None if that is not known."""
    found = [(run, worst["spent"]) for run in group.runs if (worst := run.account(knob)["worst"])]
    if not found:
        return None
    run, entry = max(found, key=lambda pair: share(pair[1]))
    seed = run.seed if len(group.runs) > 1 else None
    return Worst(entry["who"], seed, share(entry), share(entry, "charged"))


def agrees(group: Group, knob: str) -> bool:
    """Return whether all runs have spent what they were charged, apart from sampling noise."""
    return all(run.account(knob)["agree"] for run in group.runs)


def _joint_budgets(group: Group) -> dict[str, Any]:
    """Return what each joint budget was charged in an iteration, in the run where most was."""
    found: dict[str, Any] = {}
    for run in group.runs:
        for name, cost in (run.summary or {}).get("joint_budgets", {}).items():
            if name not in found or found[name]["worst"]["charged"] < cost["worst"]["charged"]:
                found[name] = cost
    return found


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
    for name, cost in _joint_budgets(group).items():
        worst = cost["worst"]
        form = stored_form(cost)
        amounts = (show(value, form.unit) for value in (cost["charged"], worst["charged"], worst["budget"]))
        text = "budget.{} was charged {}, at most {} of {}".format(name, *amounts)
        notes.append(f"{text}{'' if form.is_plain else ' / iteration'} ({worst['who']})")
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
    budget = group.budget(knob)
    limit = np.inf if budget is None else budget * (1 + _ROUNDING)

    def average(*, charged: bool) -> tuple[Estimate | None, tuple[bool, ...]]:
        costs = [(run.iterations["iteration"], run.average_cost(knob, charged=charged)) for run in group.runs]
        values = align(costs)[1]
        return _last(values), tuple(bool(cost <= limit) for cost in values[:, -1:].ravel())

    spent, within = average(charged=False)
    if spent is None:
        return None
    charged, charged_within = (None, ()) if agrees(group, knob) else average(charged=True)
    form, worst = group.runs[0].form(knob), worst_of(group, knob)
    return AverageCost(spent, budget, within, charged, charged_within, worst, form, group.iterations)


def _seconds(run: Run) -> float:
    """Return the seconds of a run; up to the last evaluation if it is unfinished."""
    if run.summary is not None:
        return float(run.summary["seconds"])
    recorded = run.evaluations["seconds"]
    return float(recorded[-1]) if len(recorded) else np.nan
