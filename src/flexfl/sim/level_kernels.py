"""The search for the best message of levels (`compress.levels`): a histogram of each row, and no sort.

Every row is one thread's work from beginning to end, and its sums have a fixed order: results do not depend
on the number of threads. Sizes are computed as `compress.message` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from flexfl.sim.level_bins import histogram_of, inside_of, shortened, suffixes

Array = NDArray[Any]


@njit(cache=True)
def _cell(
    n: int, s: float, q: float, factorials: Array, largest: float, scratch: Array, bits: Array
) -> tuple[float, float]:
    """What a cell of n components with that sum and squares leaves behind, and log2 n!."""
    if n <= 0:
        return 0.0, 0.0
    mean = shortened(s / n, largest, scratch, bits)
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
def _value(
    V: float, kept: float, k: int, nbytes: int, fixed: float, slope: float, unit: float, table: Array
) -> float:
    """The objective of a message: V·‖b − v‖² + fixed + slope·size, or with the price of its size in a table.

    Sizes are bytes times `unit`, or components where that is 0; a table goes by bytes or by components.
    """
    if len(table):
        return float(V * kept + table[nbytes if unit > 0 else k])
    return V * kept + fixed + slope * (nbytes * unit if unit > 0 else k)


@njit(cache=True, inline="always")
def _at_edge(
    suffix: Array,
    place: int,
    choice: int,
    energy: float,
    sizes: tuple[Array, Array, Array, Array, float],
    scratch: Array,
    bits: Array,
) -> tuple[float, int]:
    """What a message of all components from a bin on leaves behind, and its bytes."""
    choices, factorials, places, bases, largest = sizes
    span = len(suffix) - 1 - place
    left, orders, begin = _upper_cells(choices[choice], span, suffix, factorials, largest, scratch, bits)
    n = int(suffix[place, 0]) - int(suffix[begin, 0])
    s, q = suffix[place, 1] - suffix[begin, 1], suffix[place, 2] - suffix[begin, 2]
    lowest, order = _cell(n, s, q, factorials, largest, scratch, bits)
    kept = max(0.0, energy - suffix[place, 2]) + left + lowest
    k = int(suffix[place, 0])
    return kept, _size(choices[choice], k, orders + order, factorials, places, bases[choice])


@njit(cache=True)
def _hopeful(
    suffix: Array,
    energy: float,
    reach: int,
    nothing: float,
    most: int,
    weights: tuple[float, float, float, float],
    table: Array,
    sizes: tuple[Array, Array, Array, Array, float],
    scratch: Array,
) -> Array:
    """With each L the bins that would have the least objective if their own components cost nothing, (C, H).

    A step of the price may end anywhere in them. −1 for none; those not better than nothing are left out.
    """
    V, _, _, unit = weights
    choices, bits = sizes[0], scratch.view(np.int64)
    found = np.full((len(choices), most), -1)
    least = np.full((len(choices), most), nothing)
    before = np.zeros(len(choices), dtype=np.int64)
    for place in range(len(suffix) - 2, -1, -1):
        if suffix[place, 0] == suffix[place + 1, 0]:
            continue
        if suffix[place + 1, 0] >= reach:
            break
        for c in range(len(choices)):
            kept, nbytes = _at_edge(suffix, place, c, energy, sizes, scratch, bits)
            hope, n = V * kept + table[before[c]], most
            before[c] = nbytes if unit > 0 else int(suffix[place, 0])
            while n > 0 and hope < least[c, n - 1]:
                n -= 1
            if n < most:
                found[c, n + 1 :] = found[c, n:-1].copy()
                least[c, n + 1 :] = least[c, n:-1].copy()
                found[c, n], least[c, n] = place, hope
    return found


@njit(cache=True)
def _best_edge(
    suffix: Array,
    energy: float,
    reach: int,
    enough: tuple[int, float, float],
    weights: tuple[float, float, float, float],
    table: Array,
    sizes: tuple[Array, Array, Array, Array, float],
    scratch: Array,
) -> tuple[float, int, int, float, int]:
    """The best message that ends with a bin: objective, bin, choice of L, ‖b − v‖², bytes.

    Bins that begin beyond k = reach are left out, and, where the price never falls, those whose components
    could not be worth it even if they arrived as they are; among equals the smallest amount wins. `enough`
    is what is not nearly worth it, from how many components on, and else.
    """
    V, fixed, slope, unit = weights
    (choices, _, places, bases, _), bits = sizes, scratch.view(np.int64)
    best, at, chosen, stays, length = np.inf, -1, 0, energy, 0
    for place in range(len(suffix) - 2, -1, -1):
        k = int(suffix[place, 0])
        if k == int(suffix[place + 1, 0]):
            continue
        if suffix[place + 1, 0] >= reach:
            break
        unsent = max(0.0, energy - suffix[place, 2])
        shortest = int(bases[0] + places[k] + (k + 7) // 8)
        limit = min(best, enough[1] if k > enough[0] else enough[2])
        if not len(table) and not _value(V, unsent, k, shortest, fixed, slope, unit, table) < limit:
            continue
        for c in range(len(choices)):
            kept, nbytes = _at_edge(suffix, place, c, energy, sizes, scratch, bits)
            value = _value(V, kept, k, nbytes, fixed, slope, unit, table)
            if value < best:
                best, at, chosen, stays, length = value, place, c, kept, nbytes
    return best, at, chosen, stays, length


@njit(cache=True)
def _best_within(
    inside: Array,
    suffix: Array,
    high: int,
    choice: int,
    energy: float,
    weights: tuple[float, float, float, float],
    table: Array,
    sizes: tuple[Array, Array, Array, Array, float],
    scratch: Array,
) -> tuple[float, int, int, float, int, float, int]:
    """The best message that ends with one of the components `inside`, from the bin `high` down.

    Returns:
        Objective, k, the bin of the last component, ‖b − v‖², bytes, the sum of the magnitudes that are
        sent, and the place of the last component in `inside`.
    """
    V, fixed, slope, unit = weights
    choices, factorials, places, bases, largest = sizes
    bits, bins = scratch.view(np.int64), len(suffix) - 1
    n, s, q = int(suffix[high + 1, 0]), suffix[high + 1, 1], suffix[high + 1, 2]
    place, left, orders, begin = high + 1, 0.0, 0.0, 0
    best, at, low, stays, length, total, last = np.inf, 0, high, energy, 0, 0.0, 0
    for step in range(len(inside) - 1, -1, -1):  # the largest first
        size = np.float64(inside[step])
        n, s, q = n + 1, s + size, q + size * size
        if n > suffix[place, 0]:
            while n > suffix[place, 0]:
                place -= 1
            left, orders, begin = _upper_cells(
                choices[choice], bins - place, suffix, factorials, largest, scratch, bits
            )
        inner, more, square = n - int(suffix[begin, 0]), s - suffix[begin, 1], q - suffix[begin, 2]
        lowest, order = _cell(inner, more, square, factorials, largest, scratch, bits)
        kept = max(0.0, energy - q) + left + lowest
        nbytes = _size(choices[choice], n, orders + order, factorials, places, bases[choice])
        value = _value(V, kept, n, nbytes, fixed, slope, unit, table)
        if value < best:
            best, at, low, stays, length, total, last = value, n, place, kept, nbytes, s, step
    return best, at, low, stays, length, total, last


@njit(cache=True)
def _means(
    suffix: Array, place: int, k: int, total: float, levels: int, largest: float, scratch: Array, into: Array
) -> None:
    """Write the means of the L cells of k components that begin in the bin `place` and have that sum."""
    bits, end = scratch.view(np.int64), len(suffix) - 1
    span, higher, more = end - place, 0.0, 0.0
    for cell in range(levels - 1, -1, -1):
        begin = place + (cell * span + levels - 1) // levels
        n, s = (suffix[begin, 0], suffix[begin, 1]) if cell > 0 else (float(k), total)
        if n > higher:
            into[cell] = shortened((s - more) / (n - higher), largest, scratch, bits)
        higher, more = n, s


@njit(cache=True)
def _scanned(
    suffix: Array,
    energy: float,
    reach: int,
    limits: tuple[int, int, float, float],
    nothing: float,
    weights: tuple[float, float, float, float],
    table: Array,
    sizes: tuple[Array, Array, Array, Array, float],
    scratch: Array,
) -> Array:
    """Where every k is tried: the highest and the lowest of some bins, and the choice of L, (S, 3).

    In all bins with every L for few components; in the highest if the best edge has few. Else on both sides
    of that with its L. Both only if it is worth it, or nearly. And in `_hopeful` bins where the price is a
    table.
    """
    number, (few, most, near, near_few) = len(sizes[0]), limits
    found, scans = np.zeros((number + 1 + number * most, 3), dtype=np.int64), 0
    V, high = weights[0], len(suffix) - 2
    if suffix[0, 0] <= few:
        found[:number, 0], found[:number, 2] = high, np.arange(number)
        return found[:number]
    enough = few, nothing + near * V * energy, nothing + near_few * V * energy
    value, place, choice, kept, _ = _best_edge(suffix, energy, reach, enough, weights, table, sizes, scratch)
    share = near_few if place >= 0 and suffix[place, 0] <= few else near
    if place >= 0 and value < nothing + share * V * (energy - kept):
        after = place - 1
        if suffix[place, 0] <= few:
            low = place
            while low > 0 and suffix[low, 0] < few:
                low -= 1
            found[:number, 0], found[:number, 1], found[:number, 2] = high, low, np.arange(number)
            scans = number
        else:
            while after > 0 and suffix[after, 0] == suffix[place, 0]:
                after -= 1
            if suffix[place, 0] >= reach or after < 0 or suffix[after, 0] == suffix[place, 0]:
                after = place
            found[0, 0], found[0, 1], found[0, 2] = place, after, choice
            scans = 1
    if len(table):
        hopeful = _hopeful(suffix, energy, reach, nothing, most, weights, table, sizes, scratch)
        for c in range(number):
            for place in hopeful[c]:
                if place >= 0:
                    found[scans, 0], found[scans, 1], found[scans, 2] = place, place, c
                    scans += 1
    return found[:scans]


@njit(parallel=True, cache=True)
def search(
    vectors: Array,
    bits: Array,
    shift: int,
    rows: Array,
    bins: int,
    limits: tuple[int, int, float, float],
    energy: Array,
    reach: Array,
    prices: tuple[Array, Array, Array, float],
    tables: Array,
    sizes: tuple[Array, Array, Array, Array, float],
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """The best message of each row: every L at every edge of a bin, then every k in the two bins at the best.

    Args:
        vectors, bits, shift, rows, bins: which rows, and how their bits are binned.
        limits: `compress.levels.LIMITS`.
        energy: ‖b‖².
        reach: no more components than this can be worth it.
        prices: V, fixed and slope of each row, and the unit of sizes (`_value`).
        tables: the price of every size instead, (M, S), or (M, 0).
        sizes: choices of L, log2 n!, bytes of places, bytes besides, the largest level.

    Returns:
        Amount, 0 for nothing; ‖b − v‖²; bytes; a cut that what is sent is above, NaN where equal magnitudes
        are divided; the upper bits of the largest; and the means of the cells, (M, L).
    """
    amounts, nbytes = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    kept, cut = energy.copy(), np.zeros(len(rows), dtype=vectors.dtype)
    tops, choices = np.zeros(len(rows), dtype=np.int64), sizes[0]
    means = np.ones((len(rows), choices[-1]), dtype=vectors.dtype)
    for i in prange(len(rows)):
        vector, ordered, scratch, table = vectors[rows[i]], bits[rows[i]], np.empty(1), tables[i]
        histogram, tops[i] = histogram_of(vector, ordered, shift, bins)
        suffix, first = suffixes(histogram), tops[i] - (bins - 1)
        weights = (prices[0][i], prices[1][i], prices[2][i], prices[3])
        nothing = weights[0] * energy[i] + (table[0] if len(table) else 0.0)
        scans = _scanned(suffix, energy[i], reach[i], limits, nothing, weights, table, sizes, scratch)
        best, inside = nothing, vector[:0]
        for scan in range(len(scans)):
            high, low, c = scans[scan]
            if scan == 0 or scans[scan - 1, 0] != high or scans[scan - 1, 1] != low:
                number = int(suffix[low, 0] - suffix[high + 1, 0])
                inside = inside_of(ordered, shift, first, low, high, number).view(vectors.dtype)
            found = _best_within(inside, suffix, high, c, energy[i], weights, table, sizes, scratch)
            value, k, place, stays, length, total, last = found
            amount = (k - 1) * len(choices) + c + 1
            if value < best or (value == best and amount < amounts[i]):
                best, amounts[i], kept[i], nbytes[i], cut[i] = value, amount, stays, length, np.nan
                if last == 0 or inside[last - 1] < inside[last]:
                    cut[i] = np.nextafter(inside[last], vectors.dtype.type(0))
                _means(suffix, place, k, total, choices[c], sizes[4], scratch, means[i])
    return amounts, kept, nbytes, cut, tops, means
