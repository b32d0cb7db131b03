"""P3.1–P3.3 for any cost, monotone or not, and for any compressor.

Over amounts the answer is exact: every amount that a compressor offers is tried, or ruled out by a bound.
Over q, which is continuous, `compute_prob` says what it promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.costs.base import Cost, cost_of_one

_SMALLEST_PROB = 1e-6
_LOG_GRID, _EVEN_GRID = 4096, 8192
_REFINEMENTS = 8
_FINE = 17
_AT_ONCE = 2**20
"""Objectives that are weighed at once: temporaries stay within some ten megabytes."""


@runtime_checkable
class Binned(Protocol):
    """Choices whose components can be counted by magnitude, without sorting them."""

    def bins(self, place: int) -> tuple[IntArray, FloatArray]:
        """Return k and ‖b − v‖² at the edges of bins of magnitude, from k = 0 to all non-zero components."""
        ...

    def inside(self, place: int, bin_: int) -> FloatArray:
        """Return ‖b − v‖² for each k within a bin, after its lower edge up to its upper edge."""
        ...


def amounts(V: Number, Phi: Number, cost: Cost, choices: Choices) -> IntArray:
    """Return the amounts that minimise V·‖b − v‖² + Φ·φ(k), of each entity; the smallest among equals.

    For a cost that is `monotone`, a vector that cannot pay for the cheapest message is not looked at, and
    bins of components are ruled out as a whole: within a bin, the objective is at least what its first
    component costs plus what its last leaves behind.
    """
    energy = choices.energy
    shape = energy.shape
    weight, queue = np.broadcast_to(V, shape).reshape(-1), np.broadcast_to(Phi, shape).reshape(-1)
    best = np.zeros(energy.size, dtype=np.int64)
    monotone = bool(getattr(cost, "monotone", False))
    places = range(energy.size)
    if monotone:
        cheapest = np.broadcast_to(_priced(np.broadcast_to(Phi, shape), cost(1)), shape).reshape(-1)
        idle = np.broadcast_to(_priced(np.broadcast_to(Phi, shape), cost(0)), shape).reshape(-1)
        # With a margin for sums in another order: a vector on the edge is looked at.
        places = np.flatnonzero(weight * energy.reshape(-1) * (1 + 1e-9) >= cheapest - idle).tolist()
    for place in places:
        price = _Price(float(weight[place]), float(queue[place]), cost_of_one(cost, place, shape))
        if monotone and choices.largest_first and isinstance(choices, Binned):
            best[place] = price.least_in_bins(choices, place)
        else:
            best[place] = price.least(choices, place)
    return best.reshape(shape)


class _Price:
    """The objective of one entity."""

    def __init__(self, V: float, Phi: float, cost: Any) -> None:
        self._V, self._Phi, self._cost = V, Phi, cost

    def _objective(self, k: IntArray, kept: FloatArray) -> FloatArray:
        return np.asarray(_priced(np.asarray(self._Phi), self._cost(k)) + self._V * kept)

    def least(self, choices: Choices, place: int) -> int:
        """Try every amount."""
        offers = choices.offers(place)
        return int(np.argmin(self._objective(offers.components, offers.kept)))

    def least_in_bins(self, choices: Binned, place: int) -> int:
        """Try every k, except in bins that cannot hold the best one."""
        k, kept = choices.bins(place)
        at_edges = self._objective(k, kept)
        edge = int(np.argmin(at_edges))
        best, found = float(at_edges[edge]), int(k[edge])
        bound = self._objective(k[:-1] + 1, kept[1:])
        wide = (np.diff(k) > 1) & (bound <= best + 1e-9 * abs(best))
        for bin_ in np.flatnonzero(wide)[np.argsort(bound[wide], kind="stable")].tolist():
            if bound[bin_] > best + 1e-9 * abs(best):
                break
            inside = np.arange(k[bin_] + 1, k[bin_ + 1] + 1)
            values = self._objective(inside, choices.inside(place, bin_))
            least = int(np.argmin(values))
            if (values[least], inside[least]) < (best, found):
                best, found = float(values[least]), int(inside[least])
        return found


def compute_prob(V: Number, Lam: Number, cost: Cost) -> FloatArray:
    """Return a q in (0, 1] that minimises P3.1, V/q + Λ·λ(q), for each entity.

    Promised, for q from 10⁻⁶ on:

    - a λ that never falls, with or without jumps: an objective within 0.34 % of the least, since the grid is
      even in log q with a step of 0.34 %, and the grid point below the best q is at most that much worse;
      where λ is smooth around it, refined to √ε;
    - any other λ: every dip that is at least 1/8192 wide is met, and refined;
    - a λ with narrower features that names them as `breakpoints`, (B,) or (B, N): these q are tried, and
      those next to them.
    """
    Lam = np.asarray(Lam, dtype=np.float64)
    shape = np.broadcast_shapes(Lam.shape, np.shape(V))

    def objective(q: FloatArray) -> FloatArray:
        return np.broadcast_to(V / q + _priced(Lam, cost(q)), q.shape)

    grid = np.union1d(
        np.geomspace(_SMALLEST_PROB, 1.0, _LOG_GRID), np.linspace(0.0, 1.0, _EVEN_GRID + 1)[1:]
    )
    best, value = np.ones(shape), objective(np.ones((1, *shape)))[0]
    for candidates in _blocks(grid, getattr(cost, "breakpoints", ()), shape):
        best, value = _better(best, value, candidates, objective)
    low, high = np.full(shape, _SMALLEST_PROB), np.ones(shape)
    reach: Number = 1.0 / _EVEN_GRID
    for _ in range(_REFINEMENTS):
        low, high = np.maximum(low, best - reach), np.minimum(high, best + reach)
        fine = np.concatenate([np.linspace(low, best, _FINE), np.linspace(best, high, _FINE)])
        best, value = _better(best, value, fine, objective)
        reach = np.maximum(best - low, high - best) / (_FINE - 1)
    return np.asarray(best)


def _better(
    best: FloatArray, value: FloatArray, candidates: FloatArray, objective: Any
) -> tuple[FloatArray, FloatArray]:
    """Return the best of what is known and the candidates (C, ...); computing more among equals."""
    found = objective(candidates)
    last = len(candidates) - 1 - np.argmin(found[::-1], axis=0)
    least, where = (np.take_along_axis(array, last[None], axis=0)[0] for array in (found, candidates))
    improved = (least < value) | ((least == value) & (where > best))
    return np.where(improved, where, best), np.where(improved, least, value)


def _blocks(grid: FloatArray, named: Any, shape: tuple[int, ...]) -> Iterator[FloatArray]:
    """Yield the grid, and breakpoints with their neighbours, as candidates (C, ...) a block at a time."""
    entities = max(1, int(np.prod(shape)))
    block = max(1, _AT_ONCE // entities)
    for begin in range(0, len(grid), block):
        part = grid[begin : begin + block].reshape(-1, *[1] * len(shape))
        yield np.broadcast_to(part, (len(part), *shape))
    points = np.asarray(named, dtype=float)
    if points.size:
        if points.shape[1:] != shape:
            points = points.reshape(-1, *[1] * len(shape))
        near = np.concatenate([np.nextafter(points, 0.0), points, np.nextafter(points, 1.0)])
        yield np.broadcast_to(np.clip(near, _SMALLEST_PROB, 1.0), (len(near), *shape))


def _priced(queue: FloatArray, cost: FloatArray) -> FloatArray:
    """Return queue times cost; an infinite cost stays forbidden where the queue is empty (0·∞)."""
    return np.where(np.isinf(cost), np.inf, queue * np.where(np.isinf(cost), 0.0, cost))
