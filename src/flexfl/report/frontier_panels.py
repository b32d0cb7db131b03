"""What a frontier's picture and page draw: the curve or maps of accuracy, and accuracy against spending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray
from flexfl.report.frontier import Frontier
from flexfl.report.frontier_cells import Axis, Point
from flexfl.report.summary import Estimate
from flexfl.units import show

FRONT_NOTE = "filled: on the Pareto front"
_SPENDERS = {"compute": "by a client", "uplink": "by a client", "downlink": "by the server"}


@dataclass(frozen=True)
class Series:
    """Points that belong together: they differ in one budget only.

    Attributes:
        group: Number of its colour.
        label: The settings that its points have in common.
        points: The cells.
        x: Where each is on the x axis, (P,).
        x_deviation: Over seeds, (P,); NaN for one seed.
        front: Which are on the Pareto front, (P,).
        is_line: Whether its points are joined.
    """

    group: int
    label: str
    points: tuple[Point, ...]
    x: FloatArray
    x_deviation: FloatArray
    front: NDArray[np.bool_]
    is_line: bool

    @property
    def y(self) -> FloatArray:
        """The mean accuracies, (P,)."""
        return np.array([point.mean for point in self.points])

    @property
    def y_deviation(self) -> FloatArray:
        """The deviations of the accuracies over seeds, (P,); NaN for one seed."""
        return np.array([_deviation(point.accuracy) for point in self.points])


@dataclass(frozen=True)
class SpentPanel:
    """Accuracy against what is spent on one knob, which is counted in `unit`."""

    knob: str
    unit: str
    series: tuple[Series, ...]

    @property
    def x_label(self) -> str:
        """What is spent, by whom."""
        return f"spent on {self.knob} {_SPENDERS[self.knob]}"

    @property
    def ticks(self) -> dict[float, str]:
        """Values to label on a logarithmic x axis, with their unit; few enough for a narrow screen."""
        spent = np.concatenate([series.x for series in self.series])
        return {value: show(value, self.unit) for value in log_ticks(float(spent.min()), float(spent.max()))}

    @property
    def is_log(self) -> bool:
        """Whether spending is drawn by its logarithm."""
        return bool(self.series) and all((series.x > 0).all() for series in self.series)


@dataclass(frozen=True)
class TargetLine:
    """Where accuracy reaches a target on a map, as places on its axes; (P,) each.

    Attributes:
        target: The test accuracy.
        name: The setting of which it is the least value.
        x: To the right.
        y: Upwards.
        at_most: Where less might do: the least value tried reaches it already; drawn at the cell's border.
    """

    target: float
    name: str
    x: FloatArray
    y: FloatArray
    at_most: NDArray[np.bool_]


@dataclass(frozen=True)
class MapPanel:
    """Accuracy over two settings, with the others as `title` says.

    Attributes:
        key: Its name on the page.
        title: The other settings; empty if there are none.
        x_axis: The setting to the right.
        y_axis: The setting upwards.
        points: The cells, by place to the right and upwards.
        lines: Where targets are reached.
    """

    key: str
    title: str
    x_axis: Axis
    y_axis: Axis
    points: dict[tuple[int, int], Point]
    lines: tuple[TargetLine, ...]

    @property
    def note(self) -> str:
        """What its marks and lines are; empty if there are none."""
        notes = ["!: spent over budget"] * any(point.is_over for point in self.points.values())
        if self.lines:
            notes.append(f"line: least {self.lines[0].name} that reaches the target, interpolated")
        return "; ".join(notes)

    @property
    def accuracy(self) -> FloatArray:
        """The mean accuracies, by row (upwards) and column; NaN where there is none."""
        shape = len(self.x_axis.values), len(self.y_axis.values)
        return np.array([self.points[place].mean for place in np.ndindex(*shape)]).reshape(shape).T


def edges(places: FloatArray) -> FloatArray:
    """Return the borders of the cells around places on an axis, half way between them, (P + 1,).

    >>> edges(np.array([1.0, 3.0, 4.0]))
    array([0. , 2. , 3.5, 4.5])
    """
    if len(places) == 1:
        return np.array([places[0] - 0.5, places[0] + 0.5])
    middle = (places[1:] + places[:-1]) / 2
    return np.array([2 * places[0] - middle[0], *middle, 2 * places[-1] - middle[-1]])


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values from `low` to `high`: at least three if the range has room, else its ends.

    >>> log_ticks(0.9, 1500.0), log_ticks(800.0, 3000.0), log_ticks(0.011, 0.0112)
    ([1.0, 10.0, 100.0, 1000.0], [1000.0, 1500.0, 2000.0, 3000.0], [0.011, 0.0112])
    """
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.floor(np.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        found = [float(f"{step * power:.6g}") for power in powers for step in steps]
        inside = [value for value in found if low <= value <= high]
        if len(inside) >= 3:
            return inside[:: -(-len(inside) // 6)]
    return [low, high] if high > low else [low]


def map_panels(frontier: Frontier) -> list[MapPanel]:
    """Return a map for each combination of the settings after the second; none for one setting."""
    if len(frontier.axes) < 2:
        return []
    x_axis, y_axis, *rest = frontier.axes
    panels = []
    for number, fixed in enumerate(np.ndindex(*frontier.shape[2:])):
        title = ", ".join(f"{axis.name}={axis.texts[n]}" for axis, n in zip(rest, fixed, strict=True))
        inside = {point.index[:2]: point for point in frontier.points if point.index[2:] == fixed}
        points = {(i, j): point for (i, j), point in inside.items()}
        lines = tuple(
            line for target in frontier.targets if (line := _target_line(frontier, target, fixed)) is not None
        )
        panels.append(MapPanel(f"map-{number}", title, x_axis, y_axis, points, lines))
    return panels


def _target_line(frontier: Frontier, target: float, fixed: tuple[int, ...]) -> TargetLine | None:
    """Return where a target is reached along the first of a map's two settings that is a budget."""
    along = next((number for number in (0, 1) if frontier.axes[number].is_budget), None)
    met = [
        (line.others[0], line.found)
        for line in frontier.cheapest
        if (line.target, line.axis, line.others[1:]) == (target, along, fixed) and line.found is not None
    ]
    if along is None or not met:
        return None
    axis, other = frontier.axes[along], frontier.axes[1 - along]
    borders = edges(axis.places)
    there = np.array(
        [borders[found.above] if found.below is None else axis.place(found.value) for _, found in met]
    )
    across = np.array([other.places[place] for place, _ in met])
    x, y = (there, across) if along == 0 else (across, there)
    return TargetLine(target, axis.name, x, y, np.array([found.below is None for _, found in met]))


def spent_panels(frontier: Frontier) -> list[SpentPanel]:
    """Return a panel for each knob whose spending is compared."""
    return [_spent_panel(frontier, knob) for knob in frontier.knobs]


def _spent_panel(frontier: Frontier, knob: str) -> SpentPanel:
    """Return a panel with a series for each combination of the other settings than that knob's budget."""
    along = next((number for number, axis in enumerate(frontier.axes) if axis.knob == knob), None)
    found: dict[tuple[int, ...], list[tuple[Point, Estimate, bool]]] = {}
    for point, front in zip(frontier.points, frontier.front, strict=True):
        if point.accuracy is not None and (spent := point.spent(knob)) is not None:
            others = tuple(place for number, place in enumerate(point.index) if along not in (number, None))
            found.setdefault(others, []).append((point, spent, bool(front)))
    rest = [axis for number, axis in enumerate(frontier.axes) if along not in (number, None)]
    series = [
        Series(
            group,
            ", ".join(f"{axis.name}={axis.texts[n]}" for axis, n in zip(rest, others, strict=True)),
            tuple(point for point, _, _ in members),
            np.array([spent.mean for _, spent, _ in members]),
            np.array([_deviation(spent) for _, spent, _ in members]),
            np.array([front for _, _, front in members]),
            along is not None,
        )
        for group, (others, members) in enumerate(found.items())
    ]
    unit = next((point.unit(knob) for point in frontier.points if point.runs), "")
    return SpentPanel(knob, unit, tuple(series))


def budget_curve(frontier: Frontier) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return place, mean and deviation of each cell of a frontier with one setting that has an accuracy."""
    (axis,) = frontier.axes
    points = [point for point in frontier.points if point.accuracy is not None]
    places = axis.places[[point.index[0] for point in points]]
    deviations = np.array([_deviation(point.accuracy) for point in points])
    return places, np.array([point.mean for point in points]), deviations


def point_text(point: Point, knobs: tuple[str, ...]) -> list[str]:
    """Return a cell in lines: its settings, accuracy, and what it spent."""
    lines = [point.label, "no finished run" if point.accuracy is None else f"accuracy {point.text}"]
    for knob in knobs:
        spent, budget = point.spent(knob), point.budget(knob)
        if spent is not None:
            part = f", {spent.mean / budget:.0%} of the budget" if budget else ""
            lines.append(f"{knob} {show(spent.mean, point.unit(knob))}{part}")
    return lines


def cell_text(point: Point) -> list[str]:
    """Return what is written in a cell of a map: accuracy and deviation; "!" if it spent over its budget."""
    if point.accuracy is None:
        return ["–"]
    deviation = point.accuracy.deviation
    mean = f"{point.mean:.3f}{' !' if point.is_over else ''}"
    return [mean] if deviation is None else [mean, f"± {deviation:.3f}"]


def _deviation(found: Estimate | None) -> float:
    return np.nan if found is None or found.deviation is None else found.deviation
