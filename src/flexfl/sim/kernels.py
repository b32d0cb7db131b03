"""Passes over the residuals (N, D), fused and parallel; the only code that is compiled.

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
_BLOCK = 4096


@njit(parallel=True, cache=True, fastmath=_SUMS)
def add_rows(residual: Array, rows: Array, start: int, step: Array, grads: Array) -> None:
    """residual[rows[i], start:start+P] += step[i]·grads[i] for grads (M, P)."""
    for i in prange(len(rows)):
        row, factor = rows[i], residual.dtype.type(step[i])
        for j in range(grads.shape[1]):
            residual[row, start + j] += factor * grads[i, j]


@njit(parallel=True, cache=True, fastmath=_SUMS)
def measure(residual: Array, cut: Array) -> tuple[Array, Array, Array]:
    """For each row: #{|b| > cut}, the sum of their squares, and the sum of all squares."""
    rows, dim = residual.shape
    count = np.zeros(rows, dtype=np.int64)
    above = np.zeros(rows)
    total = np.zeros(rows)
    for n in prange(rows):
        limit = cut[n]
        c, s, a = 0, 0.0, 0.0
        for j in range(dim):
            value = abs(residual[n, j])
            square = np.float64(value) * np.float64(value)
            a += square
            c += value > limit
            s += square if value > limit else 0.0
        count[n], above[n], total[n] = c, s, a
    return count, above, total


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
        begin, end = block * _BLOCK, min(dim, (block + 1) * _BLOCK)
        for i in range(len(rows)):
            row, limit, weight, tie = rows[i], cut[i], weights[i], last[i]
            for j in range(begin, end):
                value = residual[row, j]
                size = abs(value)
                if size > limit or (size == limit and j <= tie):
                    total[j] += weight * value
                    residual[row, j] = 0
