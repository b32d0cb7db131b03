"""P3.1–P3.3 for any cost, monotone or not, and for any compressor.

Over amounts the answer is exact: every amount that a compressor offers is tried, or ruled out by a bound.
Of a compressor that searches itself (`compress.levels`) it is what that promises.
Over q, which is continuous, `compute_prob` says what it promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number
from flexfl.compress.base import Bounded, Choices, Searching
from flexfl.control.binned import MARGIN, Binned, least_in_bins
from flexfl.control.objective import AT_ONCE, Objective, priced
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine

_SMALLEST_PROB = 1e-6
_LOG_GRID, _EVEN_GRID = 4096, 8192
_REFINEMENTS = 8
_FINE = 17
_STEPS = 8
"""Points of the grid of k in an octave."""


def amounts(V: Number, Phi: Number, cost: Cost, choices: Choices) -> IntArray:
    """Return the amounts that minimise V·‖b − v‖² + Φ·φ(k), of each entity; the smallest among equals.

    Of a compressor that finds its best amount itself (`compress.base.Searching`) it is what that finds.
    For a cost that is `monotone`, a vector that cannot pay for any message is not looked at, and for top-k
    bins of components are ruled out as a whole (`binned`). For all others every amount is tried.
    """
    return _amounts(V, Phi, cost, choices)[0]


def gains(V: Number, Phi: Number, cost: Cost, choices: Choices) -> tuple[IntArray, FloatArray]:
    """Return the best amounts, and what they take off ‖b‖²; of `Searching` choices."""
    best, kept = _amounts(V, Phi, cost, choices)
    return best, np.where(best > 0, choices.energy - kept, 0.0)


def _amounts(V: Number, Phi: Number, cost: Cost, choices: Choices) -> tuple[IntArray, FloatArray]:
    """Return the best amounts; and what they leave behind, where that is found on the way, else NaN."""
    shape = choices.energy.shape
    objective = Objective(V, Phi, cost, shape, choices.sizes_of)
    kept = np.full(len(objective.places), np.nan)
    best = np.zeros(len(objective.places), dtype=np.int64)
    monotone = bool(getattr(cost, "monotone", False))
    reach = np.full(len(best), np.iinfo(np.int64).max)
    binned = monotone and choices.largest_first and isinstance(choices, Binned)
    counted = choices.counts == "components"
    if isinstance(cost, Affine) and counted and isinstance(choices, Bounded) and not binned:
        places: IntArray = np.flatnonzero(_pays(V, Phi, cost, choices))
    elif monotone:
        reach = _reach(objective, choices)
        places = np.flatnonzero(reach)
    else:
        places = objective.places
    if isinstance(choices, Searching) and choices.searching and len(places):
        best[places], kept[places] = choices.least(objective.of(places), reach[places])
    elif binned and len(places):
        assert isinstance(choices, Binned)
        best[places] = least_in_bins(objective.of(places), choices, reach[places])
    elif len(places):
        for place in places.tolist():
            offers = choices.offers(place)
            one = objective.of(np.array([place]))
            best[place] = np.argmin(one.of_sizes(offers.sizes(choices.counts)[:, None], offers.kept[:, None]))
    return best.reshape(shape), kept.reshape(shape)


def _pays(V: Number, Phi: Number, cost: Affine, choices: Bounded) -> BoolArray:
    """Return which vectors could pay for a message if their largest components arrived as they are, (...).

    No compressor takes more off ‖b‖² with k components than top-k does, for which there is a closed form.
    """
    V, Phi = np.asarray(V, dtype=np.float64), np.asarray(Phi, dtype=np.float64)
    beta, gamma = cost.per_message, cost.per_component
    with np.errstate(divide="ignore", invalid="ignore"):  # V = 0: nothing is worth a message
        cut, enough = (np.where(V > 0, Phi * part / V, np.inf) for part in (gamma, beta))
    k, energy = choices.at_best(np.sqrt(cut), enough=enough * (1 - MARGIN))
    return np.asarray((k > 0) & (V * energy * (1 + MARGIN) >= Phi * (beta + gamma * k)))


def _reach(objective: Objective, choices: Choices) -> IntArray:
    """Return the largest k that could be better than to send nothing, 0 where there is none, (N,).

    From one k of a grid to the next, a cost that never falls is at least what it is at the lower end, and
    the components take off at most what they could take off at the upper end.
    """
    if isinstance(choices, Bounded):
        found = choices.reach(objective, _grid(choices.dim), MARGIN)
        if found is not None:
            return found
    energy = choices.energy.reshape(-1)
    reach = np.zeros(len(energy), dtype=np.int64)
    none = np.zeros((1, len(energy)), dtype=np.int64)
    idle = objective.price(none)[0]
    # Nothing takes off more than all components, nor costs less than one.
    most = choices.most(np.array([[choices.dim]]))[0] if isinstance(choices, Bounded) else energy
    pays = np.isfinite(energy) & (most > 0)
    pays &= objective.V * most * (1 + MARGIN) >= objective.price(none + 1)[0] - idle
    if not isinstance(choices, Bounded):
        return np.where(pays, np.iinfo(np.int64).max, 0)
    places = np.flatnonzero(pays)
    if not len(places):
        return reach
    some, idle, grid = objective.of(places), idle[places], _grid(choices.dim)
    at_once = max(1, AT_ONCE // len(energy))
    for begin in range(0, len(grid) - 1, at_once):
        ends = grid[begin : begin + at_once + 1, None]
        price = some.price(np.broadcast_to(ends[:-1] + 1, (len(ends) - 1, len(places))))
        most = choices.most(ends[1:])[:, places]
        worth = (most > 0) & (some.V * most * (1 + MARGIN) >= price - idle)
        reach[places] = np.maximum(reach[places], np.where(worth, ends[1:], 0).max(axis=0))
    return reach


@lru_cache(maxsize=8)
def _grid(dim: int) -> IntArray:
    """Return 0 = k₀ < k₁ < … = D, even in log k."""
    octaves = np.arange(int(np.log2(dim) * _STEPS) + 1) / _STEPS
    return np.unique(np.concatenate([[0, dim], np.minimum(np.ceil(2**octaves), dim)])).astype(np.int64)


def compute_prob(V: Number, Lam: Number, cost: Cost, least: Number = 0.0) -> FloatArray:
    """Return a q in (0, 1] that minimises P3.1, V/q + Λ·λ(q), for each entity, of those from `least` on.

    Promised, for q from 10⁻⁶ on:

    - a λ that never falls, with or without jumps: an objective within 0.34 % of the least, since the grid is
      even in log q with a step of 0.34 %, and the grid point below the best q is at most that much worse;
      where λ is smooth around it, refined to √ε;
    - any other λ: every dip that is at least 1/8192 wide is met, and refined;
    - a λ with narrower features that names them as `breakpoints`, (B,) or (B, N): these q are tried, and
      those next to them.
    """
    Lam, least = np.asarray(Lam, dtype=np.float64), np.maximum(least, _SMALLEST_PROB)
    shape = np.broadcast_shapes(Lam.shape, np.shape(V), np.shape(least))

    def objective(q: FloatArray) -> FloatArray:
        return np.broadcast_to(V / q + priced(Lam, cost(q)), q.shape)

    grid = np.union1d(np.geomspace(_SMALLEST_PROB, 1.0, _LOG_GRID), np.linspace(0.0, 1.0, _EVEN_GRID + 1)[1:])
    best: FloatArray = np.ones(shape)
    value: FloatArray = objective(np.ones((1, *shape)))[0]
    for candidates in _blocks(grid, getattr(cost, "breakpoints", ()), shape):
        best, value = _better(best, value, np.maximum(candidates, least), objective)
    low, high = np.broadcast_to(least, shape), np.ones(shape)
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
    block = max(1, AT_ONCE // entities)
    for begin in range(0, len(grid), block):
        part = grid[begin : begin + block].reshape(-1, *[1] * len(shape))
        yield np.broadcast_to(part, (len(part), *shape))
    points = np.asarray(named, dtype=float)
    if points.size:
        if points.shape[1:] != shape:
            points = points.reshape(-1, *[1] * len(shape))
        near = np.concatenate([np.nextafter(points, 0.0), points, np.nextafter(points, 1.0)])
        yield np.broadcast_to(np.clip(near, _SMALLEST_PROB, 1.0), (len(near), *shape))
