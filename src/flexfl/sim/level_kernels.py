"""Passes for messages of levels (`compress.levels`): histograms, what every cut and L come to, and sending.

Every row is one thread's work from beginning to end, and its sums have a fixed order: results do not depend
on the number of threads. Sizes are computed as `compress.message` does, digit by digit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]

_BLOCK = 2048


@njit(cache=True)
def _short(mean: float, largest: float) -> float:
    """The nearest number with eight significant bits, as `compress.message.shortened`."""
    fraction, exponent = math.frexp(mean)
    return min(math.ldexp(np.rint(fraction * 256.0), exponent - 8), largest)


@njit(parallel=True, cache=True)
def histograms(
    vectors: Array, bits: Array, shift: int, rows: Array, bins: int
) -> tuple[Array, Array, Array, Array, Array]:
    """How many components of each row are in each bin, the sums of their magnitudes and of their squares.

    Bin n has the magnitudes whose upper bits are top − (bins − 1) + n, where top are those of the largest.

    Returns:
        count, total and square, (M, bins); top, (M,); and the sum of the squares of smaller ones, (M,).
    """
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    count = np.zeros((len(rows), bins), dtype=np.int64)
    total, square = np.zeros((len(rows), bins)), np.zeros((len(rows), bins))
    top, below = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
    for i in prange(len(rows)):
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        n, s, q = count[i], total[i], square[i]
        largest = bits.dtype.type(0)
        for j in range(len(ordered)):
            largest = max(largest, ordered[j] & ~sign)
        top[i] = int(largest >> places)
        first = int(top[i]) - (bins - 1)
        rest = 0.0
        for j in range(len(vector)):
            code = ordered[j] & ~sign
            place = int(code >> places) - first
            size = np.float64(abs(vector[j]))
            if place < 0:
                rest += size * size
            elif code != 0:
                n[place] += 1
                s[place] += size
                q[place] += size * size
        below[i] = rest
    return count, total, square, top, below


@njit(cache=True)
def _weighed(
    levels: int,
    span: int,
    k: int,
    lowest: tuple[int, float, float],
    suffix: tuple[Array, Array, Array],
    end: int,
    rest: float,
    factorials: Array,
    places: Array,
    base: int,
    largest: float,
) -> tuple[float, int]:
    """‖b − v‖² and the bytes of a message of k components in L cells over `span` bins that end before `end`.

    Args:
        levels: L.
        span: bins from the lowest that is sent to the largest magnitude.
        k: how many are sent.
        lowest: number, sum and squares of those that are sent, of all bins.
        suffix: the same of those in bins from each one on.
        end: the bin after the largest magnitude.
        rest: Σ b² of those that are not sent.
        factorials: log2 n!.
        places: bytes of the places, by k.
        base: bytes of the header and the table of levels.
        largest: the largest level that there may be.
    """
    n, s, q = lowest
    bits = factorials[k + levels - 1] - factorials[levels - 1]
    kept, low = rest, end - span
    for cell in range(levels):
        # Cell c begins at the first bin with (u − low)·L ≥ c·span.
        if cell + 1 < levels:
            begin = low + ((cell + 1) * span + levels - 1) // levels
            higher, more, squares = suffix[0][begin], suffix[1][begin], suffix[2][begin]
        else:
            higher, more, squares = 0, 0.0, 0.0
        inside, total, square = n - higher, s - more, q - squares
        if inside > 0:
            mean = _short(total / inside, largest)
            kept += max(0.0, square - 2.0 * mean * total + inside * mean * mean)
        bits -= factorials[inside]
        n, s, q = higher, more, squares
    order = int(np.ceil(bits / 8 - 1e-9)) + 1 if levels > 1 else 0
    return kept, base + places[k] + (k + 7) // 8 + order


@njit(cache=True)
def _suffixes(count: Array, total: Array, square: Array) -> tuple[Array, Array, Array]:
    """Number, sum and squares of the components in bins from each one on."""
    bins = len(count)
    n, s, q = np.zeros(bins + 1, dtype=np.int64), np.zeros(bins + 1), np.zeros(bins + 1)
    for place in range(bins - 1, -1, -1):
        n[place] = n[place + 1] + count[place]
        s[place] = s[place + 1] + total[place]
        q[place] = q[place + 1] + square[place]
    return n, s, q


@njit(parallel=True, cache=True)
def at_edges(
    count: Array,
    total: Array,
    square: Array,
    below: Array,
    reach: Array,
    choices: Array,
    factorials: Array,
    places: Array,
    bases: Array,
    largest: float,
) -> tuple[Array, Array, Array, Array]:
    """‖b − v‖² and bytes of the messages that end with each bin that is not empty, the largest first.

    Bins that begin beyond k = reach are left out.

    Returns:
        ids (M, E), the bins, −1 where there are fewer; k (M, E); kept (M, E, C), ∞ where there are fewer;
        and nbytes (M, E, C).
    """
    bins = count.shape[1]
    most = 0
    number = np.zeros(len(count), dtype=np.int64)
    for i in range(len(count)):
        k = 0
        for place in range(bins - 1, -1, -1):
            if count[i, place] > 0 and k < reach[i]:
                number[i] += 1
                k += count[i, place]
        most = max(most, number[i])
    ids = np.full((len(count), most), -1, dtype=np.int64)
    ks = np.zeros((len(count), most), dtype=np.int64)
    kept = np.full((len(count), most, len(choices)), np.inf)
    nbytes = np.zeros((len(count), most, len(choices)), dtype=np.int64)
    for i in prange(len(count)):
        suffix = _suffixes(count[i], total[i], square[i])
        unsent = np.zeros(bins + 1)  # from the smallest up
        unsent[0] = below[i]
        for place in range(bins):
            unsent[place + 1] = unsent[place] + square[i, place]
        e, place = 0, bins
        while e < number[i]:
            place -= 1
            if count[i, place] == 0:
                continue
            k = suffix[0][place]
            ids[i, e], ks[i, e] = place, k
            lowest = (k, suffix[1][place], suffix[2][place])
            for c in range(len(choices)):
                kept[i, e, c], nbytes[i, e, c] = _weighed(
                    choices[c], bins - place, k, lowest, suffix, bins, unsent[place],
                    factorials, places, bases[c], largest,
                )  # fmt: skip
            e += 1
    return ids, ks, kept, nbytes


@njit(parallel=True, cache=True)
def within_bins(
    vectors: Array,
    bits: Array,
    shift: int,
    rows: Array,
    top: Array,
    high: Array,
    low: Array,
    count: Array,
    total: Array,
    square: Array,
    below: Array,
    choices: Array,
    factorials: Array,
    places: Array,
    bases: Array,
    largest: float,
    longest: int,
) -> tuple[Array, Array, Array]:
    """‖b − v‖² and bytes of the messages that end within the bins from high[i] down to low[i].

    Returns:
        k (M, longest), 0 where there are fewer; kept (M, longest, C), ∞ there; nbytes (M, longest, C).
    """
    bins = count.shape[1]
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    moved = bits.dtype.type(shift)
    ks = np.zeros((len(rows), longest), dtype=np.int64)
    kept = np.full((len(rows), longest, len(choices)), np.inf)
    nbytes = np.zeros((len(rows), longest, len(choices)), dtype=np.int64)
    for i in prange(len(rows)):
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        first = int(top[i]) - (bins - 1)
        suffix = _suffixes(count[i], total[i], square[i])
        inside = np.empty(suffix[0][low[i]] - suffix[0][high[i] + 1], dtype=vectors.dtype)
        found = 0
        for j in range(len(vector)):
            place = int((ordered[j] & ~sign) >> moved) - first
            if low[i] <= place <= high[i] and vector[j] != 0:
                inside[found] = abs(vector[j])
                found += 1
        inside.sort()
        unsent = np.empty(found + 1)  # from the smallest up
        unsent[0] = below[i]
        for place in range(low[i]):
            unsent[0] += square[i, place]
        for at in range(found):
            unsent[at + 1] = unsent[at] + np.float64(inside[at]) * np.float64(inside[at])
        n, s, q = suffix[0][high[i] + 1], suffix[1][high[i] + 1], suffix[2][high[i] + 1]
        place = high[i]
        for at in range(found):  # the largest first
            size = np.float64(inside[found - 1 - at])
            n, s, q = n + 1, s + size, q + size * size
            while n > suffix[0][place]:
                place -= 1
            ks[i, at] = n
            for c in range(len(choices)):
                kept[i, at, c], nbytes[i, at, c] = _weighed(
                    choices[c], bins - place, n, (n, s, q), suffix, bins, unsent[found - 1 - at],
                    factorials, places, bases[c], largest,
                )  # fmt: skip
    return ks, kept, nbytes


@njit(parallel=True, cache=True)
def prepare(
    vectors: Array,
    bits: Array,
    shift: int,
    rows: Array,
    cut: Array,
    last: Array,
    levels: Array,
    bins: int,
    largest: float,
) -> tuple[Array, Array, Array, Array]:
    """The cells of the components of each row that are sent, and the means of the cells.

    Sent are those with |b| > cut, or |b| = cut at an index of at most `last`.

    Returns:
        low (M,), the upper bits of the smallest that is sent; cell (M, bins), of each bin from there on; mean
        (M, L), in the type of the vectors; and how many are in each cell, (M, L).
    """
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    most = levels.max()
    low = np.zeros(len(rows), dtype=np.int64)
    cells = np.zeros((len(rows), bins), dtype=np.int64)
    means = np.ones((len(rows), most), dtype=vectors.dtype)
    counts = np.zeros((len(rows), most), dtype=np.int64)
    for i in prange(len(rows)):
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        least, top = ~bits.dtype.type(0), bits.dtype.type(0)
        for j in range(len(vector)):
            size = abs(vector[j])
            if size > cut[i] or (size == cut[i] and j <= last[i]):
                code = ordered[j] & ~sign
                least, top = min(least, code), max(top, code)
        low[i] = int(least >> places)
        span = int(top >> places) - low[i] + 1
        for place in range(span):
            cells[i, place] = place * levels[i] // span
        sums = np.zeros(most)
        for j in range(len(vector)):
            size = abs(vector[j])
            if size > cut[i] or (size == cut[i] and j <= last[i]):
                cell = cells[i, int((ordered[j] & ~sign) >> places) - low[i]]
                sums[cell] += np.float64(size)
                counts[i, cell] += 1
        for cell in range(levels[i]):
            if counts[i, cell] > 0:
                means[i, cell] = _short(sums[cell] / counts[i, cell], largest)
    return low, cells, means, counts


@njit(parallel=True, cache=True)
def move(
    residual: Array,
    bits: Array,
    shift: int,
    rows: Array,
    cut: Array,
    last: Array,
    low: Array,
    cells: Array,
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
    for block in prange((dim + _BLOCK - 1) // _BLOCK):
        begin = block * _BLOCK
        sums = total[begin : begin + _BLOCK]
        for i in range(len(rows)):
            vector = residual[rows[i]][begin : begin + _BLOCK]
            ordered = bits[rows[i]][begin : begin + _BLOCK]
            limit, until, weight, lowest = cut[i], last[i] - begin, weights[i], low[i]
            for j in range(len(vector)):
                size = abs(vector[j])
                if size > limit or (size == limit and j <= until):
                    mean = means[i, cells[i, int((ordered[j] & ~sign) >> places) - lowest]]
                    value = -mean if vector[j] < 0 else mean
                    sums[j] += weight * value
                    vector[j] -= value
