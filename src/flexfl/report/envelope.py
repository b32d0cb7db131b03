"""What a budget buys: the monotone envelope of accuracies, the cheapest budget for one, the Pareto front.

Pure functions over arrays; `report.frontier` has the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray


def envelope(accuracy: FloatArray, along: Sequence[int]) -> FloatArray:
    """Return for each cell the best accuracy of all cells that have no more of any budget.

    Who has more may spend less, so what a budget buys cannot fall when it grows; what is measured can, since
    it depends on the seeds.

    Args:
        accuracy: Of each cell of a grid, NaN where there is none; indices grow with the setting.
        along: The axes of the grid that are budgets; along the others cells are not compared.

    Returns:
        The envelope, of the same shape; NaN where no such cell has an accuracy.

    >>> envelope(np.array([[0.5, 0.4], [0.3, 0.7]]), [0, 1])
    array([[0.5, 0.5],
           [0.5, 0.7]])
    """
    best = np.where(np.isnan(accuracy), -np.inf, accuracy)
    for axis in along:
        best = np.maximum.accumulate(best, axis=axis)
    return np.where(np.isneginf(best), np.nan, best)


@dataclass(frozen=True)
class Crossing:
    """Where an envelope reaches a target.

    Attributes:
        value: Of the setting, interpolated.
        above: Index of the first value tried that reaches the target.
        below: Index of the one before it, which does not; None if `above` is the first that has an accuracy,
            and less might do.
    """

    value: float
    above: int
    below: int | None


def crossing(values: FloatArray, best: FloatArray, target: float) -> Crossing | None:
    """Return the least value at which the envelope reaches `target`; None if it never does.

    Between two values tried the envelope is taken as linear in the logarithm of the value, or in the value
    itself where the lower one is not positive.

    Args:
        values: The values tried, increasing, (P,).
        best: The envelope at these, (P,).
        target: The accuracy to reach.

    >>> crossing(np.array([1.0, 4.0]), np.array([0.5, 0.7]), 0.6)
    Crossing(value=2.0, above=1, below=0)
    """
    reached = np.flatnonzero(best >= target)
    if not len(reached):
        return None
    above = int(reached[0])
    if above == 0 or np.isnan(best[above - 1]):
        return Crossing(float(values[above]), above, None)
    below = above - 1
    low, high = float(values[below]), float(values[above])
    if best[above] == target:
        return Crossing(high, above, below)
    part = float((target - best[below]) / (best[above] - best[below]))
    value = low * (high / low) ** part if low > 0 else low + part * (high - low)
    return Crossing(float(np.clip(value, low, high)), above, below)


def on_front(spent: FloatArray, accuracy: FloatArray) -> NDArray[np.bool_]:
    """Return which points are on the Pareto front: no other is as accurate for less, or better for as much.

    Args:
        spent: What each point has spent on each of K resources, (P, K).
        accuracy: Of each point, (P,). A point with a NaN here or in `spent` is not on the front.

    Returns:
        (P,); of points that agree in everything all are on the front, or none.

    >>> on_front(np.array([[1.0], [2.0], [2.0]]), np.array([0.5, 0.6, 0.55])).tolist()
    [True, True, False]
    """
    known = np.isfinite(accuracy) & np.isfinite(spent).all(axis=1)
    cheap = (spent[:, None, :] <= spent[None, :, :]).all(axis=2)  # (P, P): p spends no more than q
    good = accuracy[:, None] >= accuracy[None, :]
    strict = (spent[:, None, :] < spent[None, :, :]).any(axis=2) | (accuracy[:, None] > accuracy[None, :])
    dominated = (cheap & good & strict).any(axis=0)
    return np.asarray(known & ~dominated)
