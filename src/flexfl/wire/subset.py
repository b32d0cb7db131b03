"""Which k of d components, in as many bits as there are such choices: log2 of the binomial.

A range coder goes through the components; given that `ones` of the `left` ones that remain are
chosen, the next is chosen with probability ones/left. These probabilities multiply to exactly
1/(d over k), whichever components they are. So the length depends on k and d alone, and is known
before anything is coded; a budget can be held against it.

Any bytes decode to k ascending indices below d: there is no wrong order and no index out of range.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import gammaln

from flexfl.arrays import IntArray

Bytes = NDArray[np.uint8]

_TOP = np.uint64(56)
_EIGHT = np.uint64(8)
_LOW = np.uint64(2**48)
_ALL = np.uint64(2**64 - 1)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


def subset_bytes(count: IntArray, dim: int) -> IntArray:
    """How long the code of `count` of `dim` components is: log2 of the binomial, and a byte to end with.

    Choices that leave nothing to tell, none or all, take no bytes.
    """
    k = np.asarray(count, dtype=np.int64)
    bits = (math.lgamma(dim + 1.0) - gammaln(k + 1.0) - gammaln(dim - k + 1.0)) / math.log(2.0)
    return np.where((k > 0) & (k < dim), np.ceil(bits / 8 - 1e-9).astype(np.int64) + 1, 0)


def encode_subset(indices: IntArray, dim: int) -> bytes:
    """The code of ascending `indices` below `dim`."""
    size = int(subset_bytes(np.asarray(len(indices)), dim))
    if not size:
        return b""
    out = np.zeros(size + 16, dtype=np.uint8)
    used = _encode(np.asarray(indices, dtype=np.int64), dim, out)
    assert used <= size
    return out[:size].tobytes()


def decode_subset(code: bytes | memoryview, count: int, dim: int) -> IntArray:
    """The indices; `code` must have the length that `subset_bytes` tells."""
    if not 0 < count < dim:
        return np.arange(count)
    return np.asarray(_decode(np.frombuffer(code, dtype=np.uint8), count, dim))


@njit(cache=True)
def _carry(out: Bytes, place: int) -> None:
    """One more in the bytes before `place`."""
    while True:
        place -= 1
        if out[place] < 255:
            out[place] += 1
            return
        out[place] = 0


@njit(cache=True)
def _encode(indices: Any, dim: int, out: Bytes) -> int:
    """Writes the code into `out`, returns its length.

    The code is a number in [low, low + range): a chosen component takes the lower part.
    """
    low, span, place = _ZERO, _ALL, 0
    ones, found = len(indices), 0
    for j in range(dim):
        if ones == 0 or ones == dim - j:
            break  # what remains is told already
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
    # The shortest number in the interval.
    for length in range(1, 9):
        rest = (_ONE << np.uint64(64 - 8 * length)) - _ONE if length < 8 else _ZERO
        number = (low + rest) & ~rest
        if number - low < span:  # also if the sum has gone once around
            if number < low:
                _carry(out, place)
            for _ in range(length):
                out[place] = number >> _TOP
                place += 1
                number <<= _EIGHT
            break
    return place


@njit(cache=True)
def _decode(code: Bytes, count: int, dim: int) -> Any:
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
