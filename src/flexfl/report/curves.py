"""Curves: the recorded columns of several runs as one line with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from flexfl.arrays import FloatArray, IntArray

MOST_POINTS = 1000

Series = tuple[FloatArray, FloatArray]
"""Iterations (P,) and values (P,)."""


@dataclass(frozen=True)
class Curve:
    """One group's line in one panel.

    Attributes:
        group: Index of the group in the report; determines the colour.
        label: Label of the group.
        x: Iterations, or what else the x axis shows, (P,).
        mean: The line, (P,).
        low: Lower end of the band; None if there is no band.
        high: Upper end of the band; None if there is no band.
        origin: Where its runs are stored.
        thin: Whether it is drawn as a thin line, beside another line of its group.
        averaged: Whether it is of the averaged model: drawn dashed, beside the line of its group.
    """

    group: int
    label: str
    x: FloatArray
    mean: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    origin: str = ""
    thin: bool = False
    averaged: bool = False

    @property
    def is_main(self) -> bool:
        """Whether it is the line of its group, and not one beside it."""
        return not self.thin and not self.averaged

    @property
    def highest(self) -> FloatArray:
        """The upper end of the band, or the line itself."""
        return self.mean if self.high is None else self.high


def align(series: Sequence[Series]) -> tuple[FloatArray, FloatArray]:
    """Return the iterations common to all runs, (P,), and each run's values there, (S, P).

    Empty runs are left out, and iterations at which a run has no finite value.

    >>> align([(np.array([0., 1., 2.]), np.array([5., 6., 7.])), (np.array([1., 2.]), np.array([8., 9.]))])
    (array([1., 2.]), array([[6., 7.],
           [8., 9.]]))
    """
    recorded = [(x, y) for x, y in series if len(x)]
    if not recorded:
        return np.empty(0), np.empty((0, 0))
    common = reduce(np.intersect1d, [x for x, _ in recorded])
    values = np.array([y[np.isin(x, common)] for x, y in recorded])  # (S, P)
    finite = np.isfinite(values).all(axis=0)
    return common[finite], values[:, finite]


def interpolate(series: Sequence[Series]) -> tuple[FloatArray, FloatArray]:
    """Return values of x within the range that all runs reach, (P,), and each run's values there, (S, P).

    For an x axis on which runs differ, such as what each has spent: the points of all runs, with values in
    between interpolated linearly. Where a run has several values at one x (it went on without spending),
    the last one counts. Empty runs are left out, and values that are not finite.

    >>> interpolate([(np.array([0., 2.]), np.array([0., 1.])), (np.array([0., 1.]), np.array([4., 8.]))])
    (array([0., 1.]), array([[0. , 0.5],
           [4. , 8. ]]))
    """
    recorded = [found for x, y in series if len((found := last_values(x, y))[0])]
    if not recorded:
        return np.empty(0), np.empty((0, 0))
    begin, end = max(x[0] for x, _ in recorded), min(x[-1] for x, _ in recorded)
    points = np.unique(np.concatenate([x for x, _ in recorded]))
    points = points[(begin <= points) & (points <= end)]
    return points, np.array([np.interp(points, x, y) for x, y in recorded]).reshape(len(recorded), -1)


def last_values(x: FloatArray, y: FloatArray) -> Series:
    """Return the finite points of a series, with one value, the last, at each x."""
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    last = np.append(np.diff(x) > 0, True)[: len(x)]
    return x[last], y[last]


def mean_and_deviation(values: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return mean and sample standard deviation over seeds, the first axis; None for one seed."""
    mean = np.asarray(values.mean(axis=0))
    return mean, np.asarray(values.std(axis=0, ddof=1)) if len(values) > 1 else None


def running_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` values at each position, (T,); of fewer at the start.

    >>> running_mean(np.array([1.0, 3.0, 5.0]), 2)
    array([1., 2., 4.])
    """
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(0, end - window)
    return np.asarray((total[end] - total[start]) / (end - start))


def round_window(iterations: int) -> int:
    """Return about a fortieth of the iterations as a round number: 1, 2, 5, 10, 20, 50, …

    >>> round_window(1000)
    20
    """
    wanted = max(1.0, iterations / 40)
    decade = 10.0 ** np.floor(np.log10(wanted))
    return int(decade * max(step for step in (1, 2, 5) if step * decade <= wanted))


def subsample(length: int, most: int = MOST_POINTS) -> IntArray:
    """Return at most `most` evenly spaced positions of a series, including the first and the last.

    >>> subsample(9, most=3)
    array([0, 4, 8])
    """
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))


def curve_over_seeds(
    group: int, label: str, series: Sequence[Series], *, same_x: bool = True
) -> Curve | None:
    """Return a group's curve: the mean and, for several seeds, a band of one standard deviation.

    Args:
        group: Index of the group.
        label: Label of the group.
        series: The series of each run.
        same_x: Whether runs have the same values of x; else they are interpolated.

    Returns:
        The curve, or None if there is no data.
    """
    x, values = align(series) if same_x else interpolate(series)
    if not len(x):
        return None
    positions = subsample(len(x))
    mean, deviation = mean_and_deviation(values[:, positions])
    if deviation is None:
        return Curve(group, label, x[positions], mean)
    return Curve(group, label, x[positions], mean, mean - deviation, mean + deviation)


def curve_with_band(group: int, label: str, x: FloatArray, rows: FloatArray) -> Curve | None:
    """Return a curve with a recorded band; None if there is no data.

    Args:
        group: Index of the group.
        label: Label of the group.
        x: Iterations, (P,).
        rows: Line, lower and upper end of the band, (3, P).
    """
    finite = np.isfinite(rows).all(axis=0)
    if not finite.any():
        return None
    x, rows = x[finite], rows[:, finite]
    positions = subsample(len(x))
    return Curve(group, label, x[positions], *rows[:, positions])
