"""P3.1–P3.3 for any cost of q or of k, monotone or not.

Over k the answer is exact: with the k largest components sent, the objective is
V·(‖b‖² − C_k) + Φ·φ(k), where C_k is the sum of the k largest squares, and every k is tried.
Over q it is a grid over several decades, refined around the best cells until the interval is
as narrow as floating point can tell apart.
"""

from __future__ import annotations

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.compress.base import Magnitudes
from flexfl.costs.base import Cost

_SMALLEST_PROB = 1e-6
_GRID = 1024
_REFINEMENTS = 8
_FINE = 17
_CHUNK = 8192


def compute_prob(V: Number, Lam: Number, cost: Cost) -> FloatArray:
    """P3.1: the q in (0, 1] that minimises V/q + Λ·λ(q), for each entity.

    The grid has 1,024 points, evenly spaced in log q from 10⁻⁶ to 1 and as many in q, so a
    cost with steps is met within a cell; smooth costs are met to √ε.
    """
    Lam = np.asarray(Lam, dtype=np.float64)
    shape = np.broadcast_shapes(Lam.shape, np.shape(V))

    def objective(q: FloatArray) -> FloatArray:
        return V / q + _priced(Lam, cost(q))

    grid = np.union1d(np.geomspace(_SMALLEST_PROB, 1.0, _GRID), np.linspace(0.0, 1.0, _GRID + 1)[1:])
    candidates = np.broadcast_to(grid.reshape(-1, *[1] * len(shape)), (grid.size, *shape))
    low, high = np.full(shape, _SMALLEST_PROB), np.ones(shape)
    reach: Number = np.max(np.diff(grid))
    for _ in range(_REFINEMENTS):
        values = np.broadcast_to(objective(candidates), candidates.shape)
        # The last of the equally good: computing more for the same objective.
        best = _pick(candidates, len(candidates) - 1 - np.argmin(values[::-1], axis=0))
        low, high = np.maximum(low, best - reach), np.minimum(high, best + reach)
        # The best so far stays a candidate, so that no refinement loses ground.
        candidates = np.concatenate([np.linspace(low, best, _FINE), np.linspace(best, high, _FINE)])
        reach = np.maximum(best - low, high - best) / (_FINE - 1)
    return np.asarray(best)


def num_sent(V: Number, Phi: Number, cost: Cost, magnitudes: Magnitudes) -> IntArray:
    """P3.2 and P3.3: the k that minimises Φ·φ(k) − V·C_k; the smallest among equals.

    k goes up to the number of non-zero components: a message holds no zeros.
    """
    Phi = np.asarray(Phi, dtype=np.float64)
    energies = np.moveaxis(magnitudes.energies(), -1, 0)
    nonzero, _ = magnitudes.above(np.zeros(energies.shape[1:]))
    best_value = np.full(energies.shape[1:], np.inf)
    best = np.zeros(energies.shape[1:], dtype=np.int64)
    for start in range(0, int(nonzero.max(initial=0)) + 1, _CHUNK):
        gained = energies[start : start + _CHUNK]
        k = np.arange(start, start + len(gained)).reshape(-1, *[1] * best.ndim)
        value = np.where(k <= nonzero, _priced(Phi, cost(k)) - V * gained, np.inf)
        at = np.argmin(value, axis=0)
        least = _pick(value, at)
        better = least < best_value
        best_value = np.where(better, least, best_value)
        best = np.where(better, start + at, best)
    return best


def _pick(values: FloatArray, index: IntArray) -> FloatArray:
    return np.asarray(np.take_along_axis(values, np.asarray(index)[None], axis=0)[0])


def _priced(queue: FloatArray, cost: FloatArray) -> FloatArray:
    """Queue times cost; an infinite cost stays forbidden where the queue is empty (0·∞)."""
    return np.where(np.isinf(cost), np.inf, queue * np.where(np.isinf(cost), 0.0, cost))
