"""Passes over the residuals (N, D), fused and parallel; the only code that is compiled.

Inner loops run over one-dimensional slices from 0 on: that is what the compiler turns into vector
instructions (an index such as row, start + j costs a factor of three).

Every sum over a row has a fixed order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]

# Sums may be regrouped into vector lanes; NaN and infinity keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}
_BLOCK = 2048


@njit(cache=True, fastmath=_SUMS)
def _sums(vector: Array, limit: float) -> tuple[int, float, float]:
    """#{|b| > limit}, the sum of their squares, and the sum of all squares."""
    count, above, total = 0, 0.0, 0.0
    for j in range(len(vector)):
        size = abs(vector[j])
        square = np.float64(size) * np.float64(size)
        total += square
        count += size > limit
        above += square if size > limit else 0.0
    return count, above, total


@njit(parallel=True, cache=True, fastmath=_SUMS)
def add_and_measure(
    residual: Array,
    rows: Array,
    start: int,
    step: Array,
    grads: Array,
    cut: Array,
    count: Array,
    above: Array,
    total: Array,
) -> None:
    """residual[rows[i], start:start+P] += step[i]·grads[i], measured while it is at hand.

    The sums of `measure` over these columns are added to count, above and total.
    """
    width = grads.shape[1]
    for i in prange(len(rows)):
        row, factor = rows[i], step[i]
        limit = cut[row]
        c, s, a = 0, 0.0, 0.0
        columns, gradient = residual[row][start : start + width], grads[i]
        for begin in range(0, width, _BLOCK):
            block, new = columns[begin : begin + _BLOCK], gradient[begin : begin + _BLOCK]
            for j in range(len(block)):
                block[j] += factor * new[j]
            dc, ds, da = _sums(block, limit)
            c, s, a = c + dc, s + ds, a + da
        count[row] += c
        above[row] += s
        total[row] += a


@njit(parallel=True, cache=True, fastmath=_SUMS)
def add_outer_and_measure(
    residual: Array,
    rows: Array,
    start: int,
    step: Array,
    x: Array,
    g: Array,
    cut: Array,
    count: Array,
    above: Array,
    total: Array,
) -> None:
    """As above for gradients gᵀ·x given as x (M, K, in) and g (M, K, out); zeros of g cost nothing."""
    _, samples, width = x.shape
    for i in prange(len(rows)):
        row = rows[i]
        limit = cut[row]
        c, s, a = 0, 0.0, 0.0
        factor = np.zeros(samples + 4, dtype=residual.dtype)
        place = np.zeros(samples + 4, dtype=np.int64)
        vector, inputs = residual[row][start:], x[i]
        for o in range(g.shape[2]):
            used = 0
            for b in range(samples):
                factor[used], place[used] = step[i] * g[i, b, o], b
                used += g[i, b, o] != 0
            factor[used : used + 4] = 0
            block = vector[o * width : (o + 1) * width]
            for k in range(0, used, 4):  # four samples at a time; the last ones with factor zero
                f0, f1, f2, f3 = factor[k], factor[k + 1], factor[k + 2], factor[k + 3]
                x0, x1 = inputs[place[k]], inputs[place[k + 1]]
                x2, x3 = inputs[place[k + 2]], inputs[place[k + 3]]
                for j in range(len(block)):
                    block[j] += f0 * x0[j] + f1 * x1[j] + f2 * x2[j] + f3 * x3[j]
            dc, ds, da = _sums(block, limit)
            c, s, a = c + dc, s + ds, a + da
        count[row] += c
        above[row] += s
        total[row] += a


@njit(parallel=True, cache=True, fastmath=_SUMS)
def measure(residual: Array, rows: Array, cut: Array, count: Array, above: Array, total: Array) -> None:
    """For each of `rows`: #{|b| > cut}, the sum of their squares, and the sum of all squares."""
    for i in prange(len(rows)):
        row = rows[i]
        limit = cut[row]
        count[row], above[row], total[row] = _sums(residual[row], limit)


@njit(parallel=True, cache=True)
def find_cuts(residual: Array, rows: Array, k: Array) -> tuple[Array, Array]:
    """For each of `rows`, the k-th largest magnitude and the last index at which it still counts.

    The k largest, lowest index first among equals, are those with |b| > cut, or |b| = cut at
    an index of at most `last`.
    """
    dim = residual.shape[1]
    cut = np.zeros(len(rows), dtype=residual.dtype)
    last = np.full(len(rows), -1, dtype=np.int64)
    for i in prange(len(rows)):
        magnitudes = np.abs(residual[rows[i]])
        cut[i] = np.partition(magnitudes, dim - k[i])[dim - k[i]]
        missing = k[i]
        for j in range(dim):
            missing -= magnitudes[j] > cut[i]
        for j in range(dim):
            if missing > 0 and magnitudes[j] == cut[i]:
                missing -= 1
                last[i] = j
    return cut, last


@njit(parallel=True, cache=True)
def move(residual: Array, rows: Array, cut: Array, last: Array, weights: Array, total: Array) -> None:
    """total (D,) += Σ weights[i]·v_i, where v_i is what row i sends; what is sent leaves the row.

    Parallel over columns: each sum is over the senders in their order, whatever the threads.
    """
    dim = residual.shape[1]
    for block in prange((dim + _BLOCK - 1) // _BLOCK):
        begin = block * _BLOCK
        sums = total[begin : begin + _BLOCK]
        for i in range(len(rows)):
            limit, weight = cut[i], weights[i]
            vector = residual[rows[i]][begin : begin + _BLOCK]
            if begin <= last[i]:
                # Of those equal to the cut, the first ones go as well.
                for j in range(min(len(vector), last[i] + 1 - begin)):
                    if abs(vector[j]) == limit:
                        sums[j] += weight * vector[j]
                        vector[j] = 0
            for j in range(len(vector)):
                value = vector[j]
                sent = value if abs(value) > limit else residual.dtype.type(0)
                sums[j] += weight * sent
                vector[j] = value - sent
