"""Methods compared at equal budgets: accuracy for what is spent, and what an accuracy takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.axes import QUANTITIES
from flexfl.report.curves import last_values
from flexfl.report.frontier_cells import Point
from flexfl.report.groups import Group, group_of
from flexfl.report.summary import Estimate
from flexfl.report.targets import RESOURCES, Reached, estimate, resources_to
from flexfl.results import Run

HELD = 0.01
"""The share of a budget that the mean over clients and seeds may be above it."""
AVERAGED = "average_test_accuracy"
"""Test accuracy of the averaged model, where a run has one."""
SPENDINGS = {"uplink-cost": "uplink cost", "bytes": "bytes"}
"""What accuracy is shown against: names in `axes.QUANTITIES`, and what they are called."""


def mean_over_spending(spent: FloatArray, accuracy: FloatArray, end: float) -> float:
    """Return the area under accuracy over spending, from 0 to `end`, divided by `end`.

    Accuracy is linear between evaluations; whoever spends less than `end` keeps the last accuracy for the
    rest, and what is spent beyond it does not count. It is between 0 and 1, and larger is better: an
    accuracy that is reached with half the spending counts twice as long.

    >>> mean_over_spending(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.5, 0.5]), end=4.0)
    0.4375

    Args:
        spent: What was spent up to each evaluation, (P,), never falling.
        accuracy: The accuracy at each evaluation, (P,).
        end: Where spending ends.
    """
    x, y = last_values(spent, accuracy)
    if not len(x) or not end > 0:
        return np.nan
    inside = (x > 0) & (x < end)
    at = np.concatenate([[0.0], x[inside], [end]])
    return float(np.trapezoid(np.interp(at, x, y), at) / end)


def largest_share(point: Point) -> float:
    """Return what was spent of the budget that is worst kept, as a share; 0 without budgets."""
    pairs = [(point.spent(knob), point.budget(knob)) for knob in KNOBS]
    return max((spent.mean / budget for spent, budget in pairs if spent and budget), default=0.0)


def best_of(points: Sequence[Point]) -> int | None:
    """Return the place of the most accurate that keeps its budgets within 1 %; the first of equals.

    If none does, of those that exceed them least, or within 1 % as little. None if none has an accuracy.
    """
    scored = [(place, point) for place, point in enumerate(points) if point.accuracy is not None]
    least = min((largest_share(point) for _, point in scored), default=0.0)
    kept = [(place, point) for place, point in scored if largest_share(point) <= max(1.0, least) + HELD]
    return max(kept, key=lambda pair: pair[1].mean, default=(None, None))[0]


@dataclass(frozen=True)
class Contender:
    """One method.

    Attributes:
        name: Its name.
        point: Its runs, one for each seed, labelled by the settings that were chosen.
        paper: Where it comes from; empty if that is not known.
        tried: The combinations of its grid; empty if it was not tuned.
        chosen: Which of them it is.
    """

    name: str
    point: Point
    paper: str = ""
    tried: tuple[Point, ...] = ()
    chosen: int = 0

    @property
    def settings(self) -> str:
        """The settings that were chosen; empty if it was not tuned."""
        return self.point.label

    @property
    def is_over(self) -> bool:
        """Whether it has spent more than a budget, by over 1 %."""
        return largest_share(self.point) > 1 + HELD

    @property
    def last(self) -> Estimate | None:
        """The test accuracy of the model at the end."""
        return self._evaluated("test_accuracy")

    @property
    def averaged(self) -> Estimate | None:
        """The test accuracy of the averaged model at the end; None where runs have none."""
        return self._evaluated(AVERAGED)

    def _evaluated(self, column: str) -> Estimate | None:
        found = [run.evaluations[column] for run in self.point.runs if column in run.evaluations]
        ends = [float(values[-1]) for values in found if len(values) and np.isfinite(values[-1])]
        return estimate(ends) if ends else None

    def total(self, name: str) -> Estimate:
        """Return what was used of a quantity in the whole run (`axes.QUANTITIES`), over seeds."""
        return estimate([float(QUANTITIES[name].at_evaluations(run)[-1]) for run in self.point.runs])


@dataclass(frozen=True)
class Comparison:
    """Methods with their results.

    Attributes:
        name: What they were compared on: the name of the base.
        contenders: The methods.
        targets: Test accuracies to reach.
        missing: Methods without a finished run.
    """

    name: str
    contenders: tuple[Contender, ...]
    targets: tuple[float, ...] = ()
    missing: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """A group for each method."""
        return tuple(group_of(one.name, one.point.runs) for one in self.contenders)

    @property
    def clients(self) -> int:
        """N."""
        return int(self.contenders[0].point.runs[0].spec["data"]["clients"])

    @cached_property
    def reached(self) -> dict[float, tuple[Reached, ...]]:
        """For each target, what each method has used until it first reached it."""
        rows, count = resources_to(self.groups, self.targets), len(self.groups)
        return {rows[at].target: tuple(rows[at : at + count]) for at in range(0, len(rows), count)}

    @cached_property
    def ends(self) -> dict[str, float]:
        """Where the area under accuracy ends: at the uplink budget of the run, or what any run has used."""
        runs = [run for one in self.contenders for run in one.point.runs]
        most = {
            name: max(float(QUANTITIES[name].at_evaluations(run)[-1]) for run in runs) for name in SPENDINGS
        }
        budget = runs[0].budget("uplink")
        if budget is not None:
            most["uplink-cost"] = budget * self.clients * len(runs[0].iterations["iteration"])
        return most

    def area(self, contender: Contender, name: str) -> Estimate:
        """Return the area under accuracy over a spending (`mean_over_spending`), over seeds."""
        return estimate(
            [
                mean_over_spending(
                    QUANTITIES[name].at_evaluations(run), run.evaluations["test_accuracy"], self.ends[name]
                )
                for run in contender.point.runs
            ]
        )

    @property
    def has_averaged(self) -> bool:
        """Whether any run has an averaged model."""
        return any(one.averaged is not None for one in self.contenders)

    def rows(self) -> list[dict[str, Any]]:
        """Return the methods as rows of plain data, for CSV and JSON."""
        return [self._row(number, one) for number, one in enumerate(self.contenders)]

    def _row(self, number: int, one: Contender) -> dict[str, Any]:
        point, worst = one.point, one.point.worst
        row: dict[str, Any] = {"method": one.name, "paper": one.paper, "settings": one.settings}
        row |= {"seeds": len(point.runs), "iterations": len(point.runs[0].iterations["iteration"])}
        row |= _columns("accuracy", point.accuracy) | _columns("last_accuracy", one.last)
        if self.has_averaged:
            row |= _columns("averaged_accuracy", one.averaged)
        for name in SPENDINGS:
            row |= _columns(f"area_{name}".replace("-", "_"), self.area(one, name))
        for knob in KNOBS:
            spent, budget = point.spent(knob), point.budget(knob)
            part = None if spent is None or not budget else _digits(spent.mean / budget)
            row |= _columns(f"{knob}_cost", spent) | {f"{knob}_budget": budget, f"{knob}_share": part}
        row |= {"over_budget": one.is_over, "worst_share": worst and _digits(worst.share)}
        row |= {"worst_knob": worst and worst.knob, "worst_client": worst and worst.who}
        for name in ("uplink-bytes", "downlink-bytes", "seconds"):
            row |= _columns(name.replace("-", "_"), one.total(name))
        for target, reached in self.reached.items():
            row |= _reached_columns(target, reached[number])
        return row | {"tried": len(one.tried)}

    def points(self) -> Iterator[Mapping[str, Any]]:
        """Yield accuracy and what was spent at every evaluation of every run, for other plots."""
        for one in self.contenders:
            for run in one.point.runs:
                yield from _evaluations(one.name, run)

    def plain(self) -> dict[str, Any]:
        """Return all results as plain data: the methods, what was tuned, and what is missing."""
        tuned = {
            one.name: [
                {
                    "settings": point.label,
                    "accuracy": _digits(point.mean),
                    "share": _digits(largest_share(point)),
                }
                for point in one.tried
            ]
            for one in self.contenders
            if one.tried
        }
        return {
            "base": self.name,
            "targets": list(self.targets),
            "methods": self.rows(),
            "tuned": tuned,
            "missing": list(self.missing),
        }


def _reached_columns(target: float, found: Reached) -> dict[str, Any]:
    named = f"{target:.2f}" if round(target, 2) == target else f"{target:g}"
    plain, to = found.plain(), f"_to_{named}"
    row: dict[str, Any] = {f"seeds_that_reach_{named}": found.reached}
    for name in RESOURCES:
        key = "iterations" if name == "iteration" else name.replace("-", "_")
        row |= {key + to: plain[key], f"{key}{to}_deviation": plain[f"{key}_deviation"]}
    return row


def _evaluations(method: str, run: Run) -> Iterator[dict[str, Any]]:
    clients = int(run.spec["data"]["clients"])
    columns = {
        "uplink_cost_per_client": QUANTITIES["uplink-cost"].at_evaluations(run) / clients,
        "compute_cost_per_client": QUANTITIES["compute-cost"].at_evaluations(run) / clients,
        "downlink_cost": QUANTITIES["downlink-cost"].at_evaluations(run),
        "uplink_bytes": QUANTITIES["uplink-bytes"].at_evaluations(run),
        "downlink_bytes": QUANTITIES["downlink-bytes"].at_evaluations(run),
        "test_accuracy": run.evaluations["test_accuracy"],
    }
    for place, iteration in enumerate(run.evaluations["iteration"]):
        row: dict[str, Any] = {"method": method, "seed": run.seed, "iteration": int(iteration)}
        yield row | {name: _digits(float(values[place])) for name, values in columns.items()}


def _columns(name: str, found: Estimate | None) -> dict[str, float | None]:
    mean, deviation = (None, None) if found is None else (found.mean, found.deviation)
    return {name: _digits(mean), f"{name}_deviation": _digits(deviation)}


def _digits(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")
