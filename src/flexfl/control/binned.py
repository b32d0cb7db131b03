"""P3.2 and P3.3 for a cost that never falls, over all vectors at once: bins of magnitude instead of a sort.

At the edges of bins ‖b − v‖² is known from a count. Within a bin the objective is bounded from below, which
rules out nearly all of them; only what is left is sorted. The answer is that of trying every k.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray
from flexfl.control.objective import Objective

MARGIN = 1e-9
"""For sums in another order: what comes so near to the best is looked at."""
_PARTS = 8


class Bins(Protocol):
    """The components of M vectors, counted by magnitude in E bins, the largest first.

    A vector with fewer bins has empty ones at the end.

    Attributes:
        columns: which of the vectors asked for, (M,).
        edges: k after each bin, from 0 on, (E + 1, M).
        left: ‖b − v‖² for these k, summed from the smallest up, (E + 1, M).
        low: a square that none in the bin is below, (E, M).
        high: a square that none in the bin is above, (E, M).
        cut: magnitudes that all up to this bin are above and all others are not, (E, M).
    """

    columns: IntArray
    edges: IntArray
    left: FloatArray
    low: FloatArray
    high: FloatArray
    cut: NDArray[np.floating]

    def scan(self, wanted: BoolArray) -> Iterator[tuple[IntArray, IntArray, FloatArray, FloatArray]]:
        """Yield some of the vectors (m,) with k, ‖b − v‖² and a cut, (L, m), for each k in their wanted bins.

        k = 0 with ‖b − v‖² = ∞ fills up; the cut is negative for a k that splits equal magnitudes.
        """
        ...

    def remember(self, k: IntArray, kept: FloatArray, cut: NDArray[np.floating]) -> None:
        """Take note that k components are above the cut, and what they leave behind, (M,)."""
        ...


@runtime_checkable
class Binned(Protocol):
    """Choices whose components can be counted by magnitude, without sorting them."""

    def binned(self, places: IntArray, reach: IntArray) -> Iterator[Bins]:
        """Yield the bins of these vectors, a few at a time; those beyond k = `reach` may be left out."""
        ...


def least_in_bins(objective: Objective, choices: Binned, reach: IntArray) -> IntArray:
    """Return the k up to `reach` that minimises the objective of each of its entities; the smallest."""
    best = np.zeros(len(objective.places), dtype=np.int64)
    for bins in choices.binned(objective.places, reach):
        best[bins.columns] = _least(objective.of(bins.columns), bins)
    return best


def _least(objective: Objective, bins: Bins) -> IntArray:
    price = objective.price(bins.edges)
    at_edges = price + objective.V * bins.left
    each = np.arange(at_edges.shape[1])
    first = at_edges.argmin(axis=0)
    best, found = at_edges[first, each], bins.edges[first, each]
    # What was counted is remembered, also of a vector that sends nothing: at its best edge.
    edge = np.where(found > 0, first, 1 + at_edges[1:].argmin(axis=0))
    count, kept, cut = bins.edges[edge, each], bins.left[edge, each], bins.cut[edge - 1, each]
    wanted = _promising(objective, bins, price, at_edges, best)
    if wanted.any():
        for some, k, stays, limit in bins.scan(wanted):
            value = objective.of(some)(k, stays)
            least = value.min(axis=0)
            smallest = np.where(value == least, k, np.iinfo(np.int64).max)
            where = smallest.argmin(axis=0), np.arange(len(some))
            better = (least < best[some]) | ((least == best[some]) & (k[where] < found[some]))
            chosen, where = some[better], (where[0][better], where[1][better])
            best[chosen], found[chosen] = least[better], k[where]
            count[chosen], kept[chosen], cut[chosen] = k[where], stays[where], limit[where]
    bins.remember(count, kept, cut)
    return np.asarray(found)


def _promising(
    objective: Objective, bins: Bins, price: FloatArray, at_edges: FloatArray, best: FloatArray
) -> BoolArray:
    """Return which bins may hold a k, not at an edge, that is as good as the best edge, (E, M)."""
    V, edges, left = objective.V, bins.edges, bins.left
    near = best + MARGIN * np.abs(best)
    after = np.minimum(edges[:-1] + 1, edges[1:])
    # At least what the first component costs, plus what the last leaves behind.
    first = objective.price(after)
    wide = (edges[1:] - edges[:-1] > 1) & (first + V * left[1:] <= near)
    # Where all cost the same, the last k of the bin is the best in it, unless one less makes no difference.
    wide &= (first != price[1:]) | (price[1:] + V * (left[1:] + bins.low) <= at_edges[1:])
    deepest = int(wide.sum(axis=0).max(initial=0))
    if not deepest:
        return wide
    # The same bound in parts of these bins, with what their magnitudes are at least and at most.
    some = np.argsort(~wide, axis=0, kind="stable")[:deepest]  # (R, M)
    low, high, begin, before = (
        np.take_along_axis(array, some, axis=0) for array in (bins.low, bins.high, edges, left)
    )
    end, behind = (np.take_along_axis(array, some + 1, axis=0) for array in (edges, left))
    part = np.arange(_PARTS + 1)[:, None, None]
    k = begin + (end - 1 - begin) * part // _PARTS  # (P + 1, R, M)
    with np.errstate(invalid="ignore"):
        kept = np.maximum(behind + (end - k[1:]) * low, before - (k[1:] - begin) * high)
    bound = objective.price(np.minimum(k[:-1] + 1, end)) + V * kept
    useful = ((k[1:] > k[:-1]) & ~(bound > near)).any(axis=0)
    np.put_along_axis(wide, some, np.take_along_axis(wide, some, axis=0) & useful, axis=0)
    return wide
