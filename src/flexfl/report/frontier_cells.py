"""Axes and cells of a frontier: the settings that vary, and the runs of each combination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.summary import Estimate
from flexfl.report.targets import estimate
from flexfl.results import Run
from flexfl.results.accounts import share
from flexfl.units import show

OVER = 0.05
"""The share of a budget that the mean over clients and seeds may be above it."""
_LAST_EVALUATIONS, _LAST_PART = 10, 0.8
_OWNERS = {"compute": "of each client", "uplink": "of each client", "downlink": "of the server"}


@dataclass(frozen=True)
class Axis:
    """One setting that varies.

    Attributes:
        field: Its dotted name.
        values: The values as numbers, increasing; a budget with a unit in that unit.
        texts: The values as they were written.
        unit: One of `units.COST_UNITS`, or "" for plain numbers.
        per: What a budget with a unit is for: "", " / iteration", " / month".
    """

    field: str
    values: tuple[float, ...]
    texts: tuple[str, ...]
    unit: str = ""
    per: str = ""

    @property
    def name(self) -> str:
        """The last part of its name, as runs are labelled."""
        return self.field.rpartition(".")[2]

    @property
    def knob(self) -> str | None:
        """The knob whose budget it is; None for any other setting."""
        section, _, name = self.field.partition(".")
        return name if section == "budget" and name in KNOBS else None

    @property
    def is_budget(self) -> bool:
        """Whether more of it cannot hurt: a budget of a knob, or a limit in a table of [budget]."""
        ends = self.field.startswith("budget.") and self.name in ("limit", "others")
        return self.knob is not None or ends

    @property
    def title(self) -> str:
        """What it is, as the label of an axis."""
        return self.field if self.knob is None else f"{self.knob} budget {_OWNERS[self.knob]}"

    @property
    def note(self) -> str:
        """What its numbers are of, as a note to the title; empty where values are written with a unit."""
        return "" if self.unit or self.knob is None else "average per iteration"

    @property
    def is_log(self) -> bool:
        """Whether it is drawn, and interpolated, by its logarithm."""
        return min(self.values) > 0

    @property
    def places(self) -> FloatArray:
        """Where its values are on the axis as drawn: the logarithms to base 10, or the values, (P,)."""
        return np.log10(self.values) if self.is_log else np.asarray(self.values)

    def place(self, value: float) -> float:
        """Return where a value is on the axis as drawn."""
        return float(np.log10(value)) if self.is_log else value

    def text(self, value: float) -> str:
        """Return a value between those that were tried, as text."""
        return show(value, self.unit) + self.per


@dataclass(frozen=True)
class Worst:
    """The client that has spent the largest share of one of its budgets, in any seed."""

    share: float
    knob: str
    who: str
    seed: int


@dataclass(frozen=True)
class Point:
    """One cell of the grid.

    Attributes:
        index: Its place on each axis.
        label: The varied settings, as its runs are labelled.
        runs: Its finished runs, one for each seed; perhaps none.
    """

    index: tuple[int, ...]
    label: str
    runs: tuple[Run, ...]

    @cached_property
    def accuracy(self) -> Estimate | None:
        """Test accuracy at the end over seeds (`final_accuracy`); None if there is none."""
        found = [accuracy for run in self.runs if (accuracy := final_accuracy(run)) is not None]
        return estimate(found) if found else None

    @property
    def mean(self) -> float:
        """The mean accuracy; NaN if there is none."""
        return np.nan if self.accuracy is None else self.accuracy.mean

    @property
    def text(self) -> str:
        """The accuracy as text; "–" if there is none."""
        if self.accuracy is None:
            return "–"
        return f"{self.mean:.3f}" if self.accuracy.deviation is None else str(self.accuracy)

    @cached_property
    def is_over(self) -> bool:
        """Whether it has spent more than a budget, by over `OVER`; then it does not show what that buys."""
        pairs = [(self.spent(knob), self.budget(knob)) for knob in KNOBS]
        return any(spent and budget and spent.mean > (1 + OVER) * budget for spent, budget in pairs)

    def spent(self, knob: str) -> Estimate | None:
        """Return what was spent on a knob in an iteration, over seeds; None if that is not known."""
        found = [cost["spent"] for cost in self._costs(knob) if cost["spent"] is not None]
        return estimate(found) if found else None

    def budget(self, knob: str) -> float | None:
        """Return the budget of a knob, averaged over clients; None for no limit."""
        return next((cost["budget"] for cost in self._costs(knob)), None)

    def unit(self, knob: str) -> str:
        """Return what the cost of a knob is counted in; "" for the paper's abstract costs."""
        return next((cost.get("unit", "") for cost in self._costs(knob)), "") or ""

    @cached_property
    def worst(self) -> Worst | None:
        """Who is worst off, over all knobs and seeds; None where that is not known."""
        found = [
            Worst(share(cost["worst"]["spent"]), knob, cost["worst"]["spent"]["who"], run.seed)
            for knob in KNOBS
            for run, cost in zip(self.runs, self._costs(knob), strict=True)
            if cost["worst"]
        ]
        return max(found, key=lambda worst: worst.share, default=None)

    def _costs(self, knob: str) -> list[Mapping[str, Any]]:
        return [run.summary["average_cost"][knob] for run in self.runs if run.summary is not None]


def final_accuracy(run: Run) -> float | None:
    """Return the mean test accuracy at the end of a run: of the last ten evaluations, in its last fifth.

    A single evaluation jumps by some percent when clients have one class each; a short run has fewer than
    ten evaluations, and the first of them are of a model that has not learned yet.
    """
    iterations, accuracy = run.evaluations["iteration"], run.evaluations["test_accuracy"]
    if not len(accuracy):
        return None
    late = accuracy[-_LAST_EVALUATIONS:][iterations[-_LAST_EVALUATIONS:] >= _LAST_PART * iterations[-1]]
    mean = float(np.mean(late))
    return mean if np.isfinite(mean) else None
