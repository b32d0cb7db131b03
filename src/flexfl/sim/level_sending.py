"""Passes that send levels (`compress.levels`): the means of their cells, and what leaves the rows.

As in `level_kernels`, sums have a fixed order, whatever the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from flexfl.sim.level_kernels import short, suffixes

Array = NDArray[Any]

_BLOCK = 2048


@njit(cache=True)
def means_of(
    histogram: Array, place: Array, k: Array, sums: Array, levels: Array, like: Array, largest: float
) -> Array:
    """The means of the cells of what each row sends, (M, L), in the type of `like`.

    What is sent begins in the bin `place`, has k components, and magnitudes with that sum.
    """
    means = np.ones((len(k), levels.max()), dtype=like.dtype)
    scratch = np.empty(1)
    bits = scratch.view(np.int64)
    for i in range(len(k)):
        suffix = suffixes(histogram[i])
        end = len(suffix) - 1
        span, higher, more = end - place[i], 0.0, 0.0
        for cell in range(levels[i] - 1, -1, -1):
            begin = place[i] + (cell * span + levels[i] - 1) // levels[i]
            n, s = (suffix[begin, 0], suffix[begin, 1]) if cell > 0 else (float(k[i]), sums[i])
            if n > higher:
                means[i, cell] = short((s - more) / (n - higher), largest, scratch, bits)
            higher, more = n, s
    return means


@njit(cache=True)
def _cells(span: int, levels: int) -> Array:
    """The cell of each of the bins that are sent, the lowest first: `compress.levels.cells_of`."""
    return np.arange(span) * levels // span


@njit(parallel=True, cache=True)
def prepare(
    vectors: Array,
    bits: Array,
    shift: int,
    rows: Array,
    cut: Array,
    last: Array,
    levels: Array,
    low: Array,
    top: Array,
    largest: float,
) -> tuple[Array, Array]:
    """The means of the cells of what each row sends, and how many components they have, (M, L).

    Sent are those with |b| > cut, or |b| = cut at an index of at most `last`; low and top are the upper bits
    of the smallest and the largest of them.
    """
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    most = levels.max()
    means = np.ones((len(rows), most), dtype=vectors.dtype)
    counts = np.zeros((len(rows), most), dtype=np.int64)
    for i in prange(len(rows)):
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        sums, scratch = np.zeros(most), np.empty(1)
        digits, cell_of = scratch.view(np.int64), _cells(top[i] - low[i] + 1, levels[i])
        for j in range(len(vector)):
            size = abs(vector[j])
            if size > cut[i] or (size == cut[i] and j <= last[i]):
                cell = cell_of[int((ordered[j] & ~sign) >> places) - low[i]]
                sums[cell] += np.float64(size)
                counts[i, cell] += 1
        for cell in range(levels[i]):
            if counts[i, cell] > 0:
                means[i, cell] = short(sums[cell] / counts[i, cell], largest, scratch, digits)
    return means, counts


@njit(parallel=True, cache=True)
def tops(bits: Array, shift: int, rows: Array) -> Array:
    """The upper bits of the largest magnitude of each row, (M,)."""
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    found = np.zeros(len(rows), dtype=np.int64)
    for i in prange(len(rows)):
        ordered, largest = bits[rows[i]], bits.dtype.type(0)
        for j in range(len(ordered)):
            largest = max(largest, ordered[j] & ~sign)
        found[i] = int(largest >> bits.dtype.type(shift))
    return found


@njit(parallel=True, cache=True)
def move(
    residual: Array,
    bits: Array,
    shift: int,
    rows: Array,
    cut: Array,
    last: Array,
    levels: Array,
    low: Array,
    top: Array,
    means: Array,
    weights: Array,
    total: Array,
) -> None:
    """total (D,) += Σ weights[i]·v_i, where v_i is what row i sends; what is sent leaves the row.

    Parallel over columns: each sum is over the senders in their order, whatever the threads.
    """
    dim = residual.shape[1]
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    arrived = np.zeros((len(rows), int((top - low).max()) + 1), dtype=residual.dtype)  # by bin
    for i in range(len(rows)):
        span = int(top[i] - low[i]) + 1
        arrived[i, :span] = means[i][_cells(span, levels[i])]
    for block in prange((dim + _BLOCK - 1) // _BLOCK):
        begin = block * _BLOCK
        sums = total[begin : begin + _BLOCK]
        for i in range(len(rows)):
            vector = residual[rows[i]][begin : begin + _BLOCK]
            ordered = bits[rows[i]][begin : begin + _BLOCK]
            limit, until, weight, lowest, values = cut[i], last[i] - begin, weights[i], low[i], arrived[i]
            for j in range(len(vector)):
                size = abs(vector[j])
                if size > limit or (size == limit and j <= until):
                    mean = values[int((ordered[j] & ~sign) >> places) - lowest]
                    value = -mean if vector[j] < 0 else mean
                    sums[j] += weight * value
                    vector[j] -= value
