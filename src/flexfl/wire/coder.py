"""The compiled range coder of `wire.subset`: for each of d components, whether it is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_TOP = np.uint64(56)
_EIGHT = np.uint64(8)
_LOW = np.uint64(2**48)
_ALL = np.uint64(2**64 - 1)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@njit(cache=True)
def _carry(out: Bytes, place: int) -> None:
    """Add one to the number in the bytes before `place`."""
    while True:
        place -= 1
        if out[place] < 255:
            out[place] += 1
            return
        out[place] = 0


@njit(cache=True)
def encode(indices: Any, dim: int, out: Bytes) -> int:
    """Write the code into `out` and return its length.

    The code is a number in [low, low + span): a chosen component takes the lower part.
    """
    low, span, place = _ZERO, _ALL, 0
    ones, found = len(indices), 0
    for j in range(dim):
        if ones == 0 or ones == dim - j:
            break  # none or all of the rest are chosen
        part = span // np.uint64(dim - j) * np.uint64(ones)
        if indices[found] == j:
            span = part
            ones -= 1
            found += 1
        else:
            before = low
            low += part
            span -= part
            if low < before:
                _carry(out, place)
        while span < _LOW:
            out[place] = low >> _TOP
            place += 1
            low <<= _EIGHT
            span <<= _EIGHT
    # Write the shortest number in the interval.
    for length in range(1, 9):
        rest = (_ONE << np.uint64(64 - 8 * length)) - _ONE if length < 8 else _ZERO
        number = (low + rest) & ~rest
        if number - low < span:  # also if the sum has overflowed
            if number < low:
                _carry(out, place)
            for _ in range(length):
                out[place] = number >> _TOP
                place += 1
                number <<= _EIGHT
            break
    return place


@njit(cache=True)
def decode(code: Bytes, count: int, dim: int) -> Any:
    """Return the `count` indices below `dim` that `code` stands for."""
    number, place = _ZERO, 0
    for _ in range(8):
        number = number << _EIGHT
        if place < len(code):
            number |= np.uint64(code[place])
        place += 1
    span, ones, found = _ALL, count, 0
    indices = np.empty(count, dtype=np.int64)
    for j in range(dim):
        if ones == 0:
            break
        if ones == dim - j:
            for k in range(j, dim):
                indices[found] = k
                found += 1
            break
        part = span // np.uint64(dim - j) * np.uint64(ones)
        if number < part:
            span = part
            ones -= 1
            indices[found] = j
            found += 1
        else:
            number -= part
            span -= part
        while span < _LOW:
            number <<= _EIGHT
            if place < len(code):
                number |= np.uint64(code[place])
            place += 1
            span <<= _EIGHT
    return indices
