"""Sending levels (`compress.levels`): what a message takes with it, and out of the residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from flexfl.sim.level_bins import histogram_of, shortened

Array = NDArray[Any]

_BLOCK, _PIECES = 2048, 16
"""Columns at once: long pieces of a row are read faster, but every thread needs some."""


@njit(parallel=True, cache=True)
def sendable(vectors: Array, bits: Array, shift: int, rows: Array, bins: int) -> Array:
    """How many components of each row can be sent, (M,)."""
    found = np.zeros(len(rows), dtype=np.int64)
    for i in prange(len(rows)):
        histogram, _ = histogram_of(vectors[rows[i]], bits[rows[i]], shift, bins)
        found[i] = int(histogram[:, 0].sum())
    return found


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
                means[i, cell] = shortened(sums[cell] / counts[i, cell], largest, scratch, digits)
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


@njit(cache=True)
def _by_bin(means: Array, levels: Array, low: Array, top: Array) -> Array:
    """What the components of each bin arrive as, from the lowest that is sent on, (M, bins)."""
    found = np.zeros((len(means), int((top - low).max()) + 1), dtype=means.dtype)
    for i in range(len(means)):
        cells = _cells(int(top[i] - low[i]) + 1, levels[i])
        for place in range(len(cells)):
            found[i, place] = means[i, cells[place]]
    return found


@njit(cache=True)
def _look_up(
    vector: Array, ordered: Array, shift: int, limit: float, lowest: int, arrives: Array, into: Array
) -> None:
    """What of a piece of a row is sent: what is above the limit, as it arrives by bin from the lowest on.

    Without a branch: about as many may be sent as are kept, and nobody can foresee which.
    """
    word = ordered.dtype.type
    sign, places = word(1) << word(ordered.itemsize * 8 - 1), word(shift)
    base, most = word(lowest), word(len(arrives) - 1)
    for j in range(len(vector)):
        value = vector[j]
        place = min(((ordered[j] & ~sign) >> places) - base, most)  # of those below, any
        into[j] = math.copysign(arrives[place], value) * (abs(value) > limit)


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
    arrived = _by_bin(means, levels, low, top)
    size = max(_BLOCK, dim // _PIECES + 1)
    for block in prange((dim + size - 1) // size):
        begin = block * size
        sums, found = total[begin : begin + size], np.empty(size, dtype=residual.dtype)
        for i in range(len(rows)):
            vector = residual[rows[i]][begin : begin + size]
            ordered = bits[rows[i]][begin : begin + size]
            sent, weight = found[: len(vector)], weights[i]
            _look_up(vector, ordered, shift, cut[i], low[i], arrived[i], sent)
            for j in range(min(len(vector), last[i] + 1 - begin)):
                if abs(vector[j]) == cut[i]:  # of those equal to the cut, the first ones go as well
                    mean = arrived[i, int((ordered[j] & ~sign) >> places) - low[i]]
                    sent[j] = -mean if vector[j] < 0 else mean
            for j in range(len(vector)):
                sums[j] += weight * sent[j]
                vector[j] -= sent[j]
