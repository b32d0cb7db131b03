"""The magnitudes of a row by bins (`compress.levels`): how many, their sums, and which some bins hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from flexfl.sim.process import forget_stale

Array = NDArray[Any]

# What these passes are built into is compiled and kept by numba, which looks at its own file only.
forget_stale("level_kernels", "level_sending", sources=("level_bins", "level_kernels", "level_sending"))

_DROPPED = 45
"""Of the 52 digits of a float64's mantissa, those that eight significant bits leave out."""
_NORMAL = float(np.finfo(np.float64).tiny)


@njit(cache=True)
def shortened(mean: float, largest: float, scratch: Array, bits: Array) -> float:
    """The nearest number with eight significant bits, ties to even: `compress.message.shortened`.

    `bits` are those of `scratch`, one number: adding half of what is dropped rounds, and carries over into
    the exponent.
    """
    if mean < _NORMAL:
        fraction, exponent = math.frexp(mean)
        return math.ldexp(np.rint(fraction * 256.0), exponent - 8)
    scratch[0] = mean
    odd = (bits[0] >> _DROPPED) & 1
    bits[0] = ((bits[0] + (1 << (_DROPPED - 1)) - 1 + odd) >> _DROPPED) << _DROPPED
    return float(min(scratch[0], largest))


@njit(cache=True)
def histogram_of(vector: Array, ordered: Array, shift: int, bins: int) -> tuple[Array, int]:
    """Number, sum of magnitudes and sum of squares of the components in each bin, (bins, 3).

    `ordered` are the bits of the vector. Bin n has the magnitudes whose upper bits are top − (bins − 1) + n,
    where top, which is returned too, are those of the largest.
    """
    sign = ordered.dtype.type(1) << ordered.dtype.type(ordered.itemsize * 8 - 1)
    places = ordered.dtype.type(shift)
    found, largest = np.zeros((bins + 1, 3)), ordered.dtype.type(0)
    number = np.zeros(bins + 1, dtype=np.int32)
    for j in range(len(ordered)):
        largest = max(largest, ordered[j] & ~sign)
    top = int(largest >> places)
    first = top - bins
    for j in range(len(vector)):
        place = max(0, int((ordered[j] & ~sign) >> places) - first)  # 0 for those that are too small
        size = np.float64(abs(vector[j]))
        number[place] += size > 0
        found[place, 1] += size
        found[place, 2] += size * size
    found[:, 0] = number
    return found[1:], top


@njit(cache=True)
def suffixes(histogram: Array) -> Array:
    """Number, sum and squares of the components in bins from each one on, (bins + 1, 3)."""
    found = np.zeros((len(histogram) + 1, 3))
    for place in range(len(histogram) - 1, -1, -1):
        for part in range(3):
            found[place, part] = found[place + 1, part] + histogram[place, part]
    return found


@njit(cache=True)
def ascending(codes: Array) -> Array:
    """The same whole numbers in order, by eleven binary digits after the other: for many that are small."""
    word, other, largest, shift = codes.dtype.type, np.empty_like(codes), codes.dtype.type(0), 0
    for code in codes:
        largest = max(largest, code)
    while largest >> word(shift) > 0:
        ends = np.zeros(2049, dtype=np.int64)
        for code in codes:
            ends[((code >> word(shift)) & word(2047)) + word(1)] += 1
        for digit in range(1, 2049):
            ends[digit] += ends[digit - 1]
        for code in codes:
            digit = (code >> word(shift)) & word(2047)
            other[ends[digit]] = code
            ends[digit] += 1
        codes, other, shift = other, codes, shift + 11
        if shift >= 8 * codes.itemsize:
            break
    return codes


@njit(cache=True)
def inside_of(ordered: Array, shift: int, first: int, low: int, high: int, number: int) -> Array:
    """The bits of the magnitudes in the bins from low to high, ascending; bin 0 has upper bits `first`."""
    word = ordered.dtype.type
    sign, moved = word(1) << word(ordered.itemsize * 8 - 1), word(shift)
    least = max(word(1), word(word(max(0, low + first)) << moved))
    width = word((word(high + 1 + first) << moved) - least)
    found, inside = 0, np.empty(number + 1, dtype=ordered.dtype)
    for j in range(len(ordered)):  # without a branch: what is outside is written over
        code = word((ordered[j] & ~sign) - least)
        inside[found] = code
        found += code < width
    inside[:number] = ascending(inside[:number])
    for place in range(number):
        inside[place] += least
    return inside[:number]
