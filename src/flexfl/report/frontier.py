"""Accuracy against budgets over a grid: envelope, cheapest budget for an accuracy, Pareto front."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.envelope import Crossing, crossing, envelope, on_front
from flexfl.report.frontier_cells import OVER, Axis, Point
from flexfl.report.summary import Estimate
from flexfl.report.targets import write_rows
from flexfl.results.files import write_text

STEM = "frontier"


@dataclass(frozen=True)
class Cheapest:
    """The least of one budget that reaches a target, with the other settings as they are in one cell.

    Attributes:
        target: The test accuracy.
        axis: Number of the axis.
        others: The places on the other axes, in their order.
        found: Where the envelope crosses the target; None if it never does.
        best: The envelope along this line, (P,).
    """

    target: float
    axis: int
    others: tuple[int, ...]
    found: Crossing | None
    best: FloatArray


@dataclass(frozen=True)
class Frontier:
    """A grid of settings with its results.

    Attributes:
        name: What was varied: the name of the spec.
        axes: The settings that vary.
        points: The cells, in the order of `numpy.ndindex` over the axes.
        targets: Test accuracies to reach.
    """

    name: str
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    targets: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values on each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def knobs(self) -> tuple[str, ...]:
        """The knobs whose spending is compared: those that vary, else those with a budget, else all."""
        varied = tuple(axis.knob for axis in self.axes if axis.knob is not None)
        limited = tuple(knob for knob in KNOBS if any(point.budget(knob) for point in self.points))
        return varied or limited or KNOBS

    @cached_property
    def accuracy(self) -> FloatArray:
        """The mean accuracy of each cell, by the axes; NaN where there is none."""
        return np.array([point.mean for point in self.points]).reshape(self.shape)

    @cached_property
    def best(self) -> FloatArray:
        """The monotone envelope (`envelope.envelope`) of cells that kept to their budgets."""
        kept = np.array([not point.is_over for point in self.points]).reshape(self.shape)
        return envelope(np.where(kept, self.accuracy, np.nan), budget_axes(self))

    @cached_property
    def front(self) -> NDArray[np.bool_]:
        """Which points are on the Pareto front of accuracy and what is spent on `knobs`, in their order."""
        spent = [[_mean(point.spent(knob)) for knob in self.knobs] for point in self.points]
        return on_front(np.array(spent), self.accuracy.ravel())

    @property
    def top(self) -> Point | None:
        """The most accurate cell that kept to its budgets, the first of several; None if there is none."""
        kept = (point for point in self.points if point.accuracy and not point.is_over)
        return max(kept, key=lambda point: point.mean, default=None)

    @property
    def over(self) -> str:
        """A remark on cells that have spent more than a budget; empty if there are none."""
        count = sum(point.is_over for point in self.points)
        if not count:
            return ""
        spent = f"{count} of {len(self.points)} cells, marked !, spent more than {1 + OVER:.0%} of a budget"
        remedy = "Run longer, or choose another control.policy"
        return f"{spent}: they do not show what it buys, and count for no target. {remedy}"

    @cached_property
    def cheapest(self) -> tuple[Cheapest, ...]:
        """For each target, budget that varies and combination of the others: the least that will do."""
        return tuple(
            Cheapest(target, number, others, crossing(np.array(axis.values), best, target), best)
            for target in self.targets
            for number, axis in enumerate(self.axes)
            if axis.is_budget
            for others, best in _lines(self.best, number)
        )

    def least(self, target: float, axis: int) -> Cheapest | None:
        """Return the cheapest of all lines along an axis, the first of equals; None if none reaches it."""
        lines = [line for line in self.cheapest if (line.target, line.axis) == (target, axis) and line.found]
        return min(lines, key=lambda line: line.found.value if line.found else np.inf, default=None)

    def smallest(self, target: float, axis: int) -> Point | None:
        """Return the cell with the smallest value on an axis that reaches the target within its budgets.

        Of several with that value the most accurate; None if no cell does.
        """
        met = [point for point in self.points if point.mean >= target and not point.is_over]
        return min(met, key=lambda point: (point.index[axis], -point.mean), default=None)

    def setting(self, line: Cheapest) -> str:
        """Return the other settings of a line as text: "downlink=0.01"; empty if there are none."""
        others = [axis for number, axis in enumerate(self.axes) if number != line.axis]
        pairs = zip(others, line.others, strict=True)
        return ", ".join(f"{axis.name}={axis.texts[place]}" for axis, place in pairs)

    def rows(self) -> list[dict[str, Any]]:
        """Return the cells as rows of plain data, for CSV and JSON."""
        return [_row(self, point, bool(front)) for point, front in zip(self.points, self.front, strict=True)]

    def plain(self) -> dict[str, Any]:
        """Return all results as plain data: what varies, the cells, and the cheapest budgets."""
        return {
            "spec": self.name,
            "axes": [
                {"field": axis.field, "values": list(axis.texts), "numbers": list(axis.values)}
                | ({"unit": axis.unit + axis.per} if axis.unit else {})
                for axis in self.axes
            ],
            "cells": self.rows(),
            "cheapest": [self._plain_line(line) for line in self.cheapest],
        }

    def _plain_line(self, line: Cheapest) -> dict[str, Any]:
        axis, found = self.axes[line.axis], line.found
        best = line.best[np.isfinite(line.best)]
        row: dict[str, Any] = {"target": line.target, "field": axis.field, "with": self.setting(line)}
        row |= {"reached": found is not None, "best_accuracy": _digits(best[-1]) if len(best) else None}
        row |= {"cheapest": found and _digits(found.value)}
        row |= {"reached_at": found and axis.texts[found.above]}
        return row | {
            "not_reached_at": None if found is None or found.below is None else axis.texts[found.below]
        }

    def write(self, out: Path) -> list[Path]:
        """Write frontier.csv (the cells) and frontier.json (`plain`); return the files."""
        table, data = out / f"{STEM}.csv", out / f"{STEM}.json"
        write_rows(table, self.rows())
        write_text(data, json.dumps(self.plain(), indent=2, ensure_ascii=False) + "\n")
        return [table, data]


def _lines(grid: FloatArray, axis: int) -> Iterator[tuple[tuple[int, ...], FloatArray]]:
    """Yield the lines of a grid along an axis, with their places on the other axes."""
    moved = np.moveaxis(grid, axis, -1)
    for others in np.ndindex(moved.shape[:-1]):
        yield others, moved[others]


def _row(frontier: Frontier, point: Point, front: bool) -> dict[str, Any]:
    pairs = zip(frontier.axes, point.index, strict=True)
    row: dict[str, Any] = {axis.field: axis.texts[place] for axis, place in pairs}
    row |= {"seeds": len(point.runs)} | _columns("accuracy", point.accuracy)
    row |= {
        "best_up_to_here": _digits(frontier.best[point.index]),
        "on_front": front,
        "over_budget": point.is_over,
    }
    for knob in KNOBS:
        spent, budget = point.spent(knob), point.budget(knob)
        part = None if spent is None or not budget else _digits(spent.mean / budget)
        row |= _columns(f"{knob}_cost", spent) | {f"{knob}_budget": budget, f"{knob}_share": part}
    worst = point.worst
    row |= {"worst_share": worst and _digits(worst.share), "worst_knob": worst and worst.knob}
    return row | {"worst_client": worst and worst.who, "worst_seed": worst and worst.seed}


def _columns(name: str, found: Estimate | None) -> dict[str, float | None]:
    mean, deviation = (None, None) if found is None else (found.mean, found.deviation)
    return {name: _digits(mean), f"{name}_deviation": _digits(deviation)}


def _digits(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def _mean(found: Estimate | None) -> float:
    return np.nan if found is None else found.mean


def cheapest_text(frontier: Frontier, target: float, number: int) -> str:
    """Return the cheapest value on an axis for a target as a sentence without its full stop."""
    axis, line = frontier.axes[number], frontier.least(target, number)
    if line is None or line.found is None:
        top = frontier.top
        if top is None:
            return "not reached: no cell has an accuracy within its budgets"
        return f"not reached: the best is {top.text} with {top.label}"
    found, setting = line.found, frontier.setting(line)
    at = f", with {setting}" if setting else ""
    above = f"{axis.texts[found.above]} ({line.best[found.above]:.3f})"
    if found.below is None:
        least = "the least that was tried" if not found.above else "and nothing smaller kept to its budgets"
        return f"at most {axis.text(found.value)}: reached at {above}, {least}{at}"
    below = f"{axis.texts[found.below]} ({line.best[found.below]:.3f})"
    return f"{axis.text(found.value)}, interpolated between {below} and {above}{at}"


def smallest_text(frontier: Frontier, target: float, number: int) -> str:
    """Return the smallest value tried on an axis whose cell reaches a target; empty if none does."""
    point = frontier.smallest(target, number)
    if point is None:
        return ""
    return f"smallest value tried that reaches it: {point.label} ({point.text})"


def budget_axes(frontier: Frontier) -> Sequence[int]:
    """Return the numbers of the axes that are budgets."""
    return [number for number, axis in enumerate(frontier.axes) if axis.is_budget]
