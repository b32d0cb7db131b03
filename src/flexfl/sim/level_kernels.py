"""Passes for the search for levels (`compress.levels`): histograms, and what every cut and L come to.

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

_DROPPED = 45
"""Of the 52 digits of a float64's mantissa, those that eight significant bits leave out."""
_NORMAL = float(np.finfo(np.float64).tiny)


@njit(cache=True)
def short(mean: float, largest: float, scratch: Array, bits: Array) -> float:
    """The nearest number with eight significant bits, ties to even: `compress.message.shortened`.

    `bits` are those of `scratch`, one number: adding half of what is dropped rounds, and carries over into
    the exponent.
    """
    if mean < _NORMAL:
        fraction, exponent = math.frexp(mean)
        return float(math.ldexp(np.rint(fraction * 256.0), exponent - 8))
    scratch[0] = mean
    odd = (bits[0] >> _DROPPED) & 1
    bits[0] = ((bits[0] + (1 << (_DROPPED - 1)) - 1 + odd) >> _DROPPED) << _DROPPED
    return float(min(scratch[0], largest))


@njit(parallel=True, cache=True)
def histograms(vectors: Array, bits: Array, shift: int, rows: Array, bins: int) -> tuple[Array, Array]:
    """Number, sum of magnitudes and sum of squares of the components of each row in each bin, (M, bins, 3).

    Bin n has the magnitudes whose upper bits are top − (bins − 1) + n, where top (M,) are those of the
    largest.
    """
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    found = np.zeros((len(rows), bins, 3))
    top = np.zeros(len(rows), dtype=np.int64)
    for i in prange(len(rows)):
        vector, ordered, histogram = vectors[rows[i]], bits[rows[i]], found[i]
        largest = bits.dtype.type(0)
        for j in range(len(ordered)):
            largest = max(largest, ordered[j] & ~sign)
        top[i] = int(largest >> places)
        first = int(top[i]) - (bins - 1)
        for j in range(len(vector)):
            place = int((ordered[j] & ~sign) >> places) - first
            size = np.float64(abs(vector[j]))
            if place >= 0 and size > 0:
                histogram[place, 0] += 1.0
                histogram[place, 1] += size
                histogram[place, 2] += size * size
    return found, top


@njit(cache=True)
def _cell(
    n: int, s: float, q: float, factorials: Array, largest: float, scratch: Array, bits: Array
) -> tuple[float, float]:
    """What a cell of n components with that sum and squares leaves behind, and log2 n!."""
    if n <= 0:
        return 0.0, 0.0
    mean = short(s / n, largest, scratch, bits)
    return max(0.0, q - 2.0 * mean * s + n * mean * mean), factorials[n]


@njit(cache=True)
def _upper_cells(
    levels: int, span: int, suffix: Array, factorials: Array, largest: float, scratch: Array, bits: Array
) -> tuple[float, float, int]:
    """What all cells but the lowest leave behind, Σ log2 n_c!, and the bin at which they begin.

    The L cells, a power of 2, are over the `span` highest bins; suffix are number, sum and squares of the
    components in bins from each one on, (bins + 1, 3). Cell c begins at the first bin with
    (u − low)·L ≥ c·span.
    """
    end, shift = len(suffix) - 1, 0
    while 1 << shift < levels:
        shift += 1
    kept, orders, stop, low = 0.0, 0.0, end, end - span
    for cell in range(levels - 1, 0, -1):
        begin = low + ((cell * span + levels - 1) >> shift)
        n = int(suffix[begin, 0] - suffix[stop, 0])
        s, q = suffix[begin, 1] - suffix[stop, 1], suffix[begin, 2] - suffix[stop, 2]
        left, order = _cell(n, s, q, factorials, largest, scratch, bits)
        kept, orders, stop = kept + left, orders + order, begin
    return kept, orders, stop


@njit(cache=True)
def _size(levels: int, k: int, orders: float, factorials: Array, places: Array, base: int) -> int:
    """The bytes of a message, given Σ log2 n_c!: `compress.message.levels_bytes`."""
    bits = factorials[k + levels - 1] - factorials[levels - 1] - orders
    order = int(np.ceil(bits / 8 - 1e-9)) + 1 if levels > 1 else 0
    return int(base + places[k] + (k + 7) // 8 + order)


@njit(cache=True)
def suffixes(histogram: Array) -> Array:
    """Number, sum and squares of the components in bins from each one on, (bins + 1, 3)."""
    found = np.zeros((len(histogram) + 1, 3))
    for place in range(len(histogram) - 1, -1, -1):
        for part in range(3):
            found[place, part] = found[place + 1, part] + histogram[place, part]
    return found


@njit(parallel=True, cache=True)
def at_edges(
    histogram: Array,
    energy: Array,
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
    bins = histogram.shape[1]
    number = np.zeros(len(histogram), dtype=np.int64)
    for i in prange(len(histogram)):
        k = 0
        for place in range(bins - 1, -1, -1):
            if histogram[i, place, 0] > 0 and k < reach[i]:
                number[i] += 1
                k += int(histogram[i, place, 0])
    most = number.max()
    ids = np.full((len(histogram), most), -1, dtype=np.int64)
    ks = np.zeros((len(histogram), most), dtype=np.int64)
    kept = np.full((len(histogram), most, len(choices)), np.inf)
    nbytes = np.zeros((len(histogram), most, len(choices)), dtype=np.int64)
    for i in prange(len(histogram)):
        scratch = np.empty(1)
        bits = scratch.view(np.int64)
        suffix = suffixes(histogram[i])
        e, place = 0, bins
        while e < number[i]:
            place -= 1
            if histogram[i, place, 0] == 0:
                continue
            k, span = int(suffix[place, 0]), bins - place
            ids[i, e], ks[i, e] = place, k
            unsent = max(0.0, energy[i] - suffix[place, 2])
            for c in range(len(choices)):
                left, orders, begin = _upper_cells(
                    choices[c], span, suffix, factorials, largest, scratch, bits
                )
                n = k - int(suffix[begin, 0])
                s, q = suffix[place, 1] - suffix[begin, 1], suffix[place, 2] - suffix[begin, 2]
                lowest, order = _cell(n, s, q, factorials, largest, scratch, bits)
                kept[i, e, c] = unsent + left + lowest
                nbytes[i, e, c] = _size(choices[c], k, orders + order, factorials, places, bases[c])
            e += 1
    return ids, ks, kept, nbytes


@njit(cache=True)
def _sorted_between(vector: Array, ordered: Array, sign: Any, least: Any, beyond: Any, count: int) -> Array:
    """The magnitudes whose bits are from `least` on and below `beyond`, ascending; there are so many."""
    inside, found = np.empty(count, dtype=vector.dtype), 0
    for j in range(len(vector)):
        code = ordered[j] & ~sign
        if code >= least and code < beyond:
            inside[found] = abs(vector[j])
            found += 1
    inside.sort()
    return inside


@njit(parallel=True, cache=True)
def within_bins(
    vectors: Array,
    bits: Array,
    shift: int,
    rows: Array,
    top: Array,
    high: Array,
    low: Array,
    histogram: Array,
    energy: Array,
    choice: Array,
    choices: Array,
    factorials: Array,
    places: Array,
    bases: Array,
    largest: float,
    longest: int,
) -> tuple[Array, Array, Array, Array, Array]:
    """‖b − v‖² and bytes of messages that end within the bins from high[i] down to low[i], for one L each.

    Returns:
        k (M, longest), 0 where there are fewer; kept (M, longest), ∞ there; nbytes (M, longest); the
        magnitude of the k-th component (M, longest); and the sum of the magnitudes up to it (M, longest).
    """
    bins = histogram.shape[1]
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    moved = bits.dtype.type(shift)
    ks = np.zeros((len(rows), longest), dtype=np.int64)
    kept = np.full((len(rows), longest), np.inf)
    nbytes = np.zeros((len(rows), longest), dtype=np.int64)
    last, sums = np.zeros((len(rows), longest), dtype=vectors.dtype), np.zeros((len(rows), longest))
    for i in prange(len(rows)):
        scratch = np.empty(1)
        digits = scratch.view(np.int64)
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        first, levels, base = int(top[i]) - (bins - 1), choices[choice[i]], bases[choice[i]]
        suffix = suffixes(histogram[i])
        least = max(bits.dtype.type(1), bits.dtype.type(low[i] + first) << moved)
        beyond = bits.dtype.type(high[i] + 1 + first) << moved
        found = int(suffix[low[i], 0] - suffix[high[i] + 1, 0])
        inside = _sorted_between(vector, ordered, sign, least, beyond, found)
        n, s, q = int(suffix[high[i] + 1, 0]), suffix[high[i] + 1, 1], suffix[high[i] + 1, 2]
        place, left, orders, begin = high[i] + 1, 0.0, 0.0, 0
        for at in range(found):  # the largest first
            size = np.float64(inside[found - 1 - at])
            n, s, q = n + 1, s + size, q + size * size
            if n > suffix[place, 0]:
                while n > suffix[place, 0]:
                    place -= 1
                left, orders, begin = _upper_cells(
                    levels, bins - place, suffix, factorials, largest, scratch, digits
                )
            inner, total, square = n - int(suffix[begin, 0]), s - suffix[begin, 1], q - suffix[begin, 2]
            lowest, order = _cell(inner, total, square, factorials, largest, scratch, digits)
            ks[i, at], last[i, at], sums[i, at] = n, inside[found - 1 - at], s
            kept[i, at] = max(0.0, energy[i] - q) + left + lowest
            nbytes[i, at] = _size(levels, n, orders + order, factorials, places, base)
    return ks, kept, nbytes, last, sums
