"""From the recorded columns of several runs to one line with a band."""

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

    group      position of the group in the report; decides the colour
    low, high  the band; None without one
    origin     where its runs lie
    """

    group: int
    label: str
    x: FloatArray
    mean: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    origin: str = ""

    @property
    def highest(self) -> FloatArray:
        return self.mean if self.high is None else self.high


def aligned(series: Sequence[Series]) -> tuple[FloatArray, FloatArray]:
    """Iterations (P,) that all runs have, and each run's values there, (S, P).

    Runs without any record are left out, iterations where a run has no finite value too.
    """
    recorded = [(x, y) for x, y in series if len(x)]
    if not recorded:
        return np.empty(0), np.empty((0, 0))
    common = reduce(np.intersect1d, [x for x, _ in recorded])
    values = np.array([y[np.isin(x, common)] for x, y in recorded])  # (S, P)
    finite = np.isfinite(values).all(axis=0)
    return common[finite], values[:, finite]


def mean_and_deviation(values: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Mean and sample standard deviation over seeds, the first axis; no deviation for one seed."""
    mean = np.asarray(values.mean(axis=0))
    return mean, np.asarray(values.std(axis=0, ddof=1)) if len(values) > 1 else None


def running_mean(values: FloatArray, window: int) -> FloatArray:
    """The mean of the last `window` values, of all so far at the start; shape as given, (T,)."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(0, end - window)
    return np.asarray((total[end] - total[start]) / (end - start))


def round_window(iterations: int) -> int:
    """About a fortieth of the run, as a round number: 1, 2, 5, 10, 20, 50, …"""
    wanted = max(1.0, iterations / 40)
    decade = 10.0 ** np.floor(np.log10(wanted))
    return int(decade * max(step for step in (1, 2, 5) if step * decade <= wanted))


def kept(length: int, most: int = MOST_POINTS) -> IntArray:
    """Positions that stay of a series too long to draw: evenly spread, first and last included."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))


def curve_over_seeds(group: int, label: str, series: Sequence[Series]) -> Curve | None:
    """Mean and, for several seeds, a band of one standard deviation; None without data."""
    x, values = aligned(series)
    if not len(x):
        return None
    stay = kept(len(x))
    mean, deviation = mean_and_deviation(values[:, stay])
    if deviation is None:
        return Curve(group, label, x[stay], mean)
    return Curve(group, label, x[stay], mean, mean - deviation, mean + deviation)


def curve_with_band(group: int, label: str, x: FloatArray, rows: FloatArray) -> Curve | None:
    """A line with a band that was recorded with it: rows are line, low, high, (3, P)."""
    finite = np.isfinite(rows).all(axis=0)
    if not finite.any():
        return None
    x, rows = x[finite], rows[:, finite]
    stay = kept(len(x))
    return Curve(group, label, x[stay], *rows[:, stay])
