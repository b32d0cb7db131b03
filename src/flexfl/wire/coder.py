"""The compiled range coder of `wire.subset` and `wire.order`.

A code is a number in [low, low + span), which each choice makes narrower. Bytes at the front of `low` are
written once span < 2^56; a later carry may still go through them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_TOP = np.uint64(56)
_EIGHT = np.uint64(8)
_LOW = np.uint64(2**56)
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
def _finish(low: Any, span: Any, out: Bytes, place: Any) -> Any:
    """Write the shortest number in [low, low + span) and return the length of the code."""
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
def _start(code: Bytes) -> Any:
    """Return the number in the first eight bytes of a code; zeros follow a code that is shorter."""
    number = _ZERO
    for place in range(8):
        number = number << _EIGHT
        if place < len(code):
            number |= np.uint64(code[place])
    return number


@njit(cache=True)
def encode_subset(indices: Any, dim: int, out: Bytes) -> Any:
    """Write the code into `out` and return its length; a chosen component takes the lower part."""
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
    return _finish(low, span, out, place)


@njit(cache=True)
def decode_subset(code: Bytes, count: int, dim: int) -> Any:
    """Return the `count` indices below `dim` that `code` stands for."""
    number, place = _start(code), 8
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


@njit(cache=True)
def _unseen(levels: int) -> Any:
    """Return a tree over the levels, the number of its stages, and how often each level counts: once.

    The tree has 2^stages leaves. A node, 1 at the top and 2n, 2n + 1 below n, holds the sum of the counts
    in its lower half; leaves beyond the levels count nothing.
    """
    stages = 0
    while 1 << stages < levels:
        stages += 1
    tree = np.zeros(1 << stages, dtype=np.uint64)
    for level in range(levels):
        for stage in range(stages):
            if not level >> stage & 1:
                tree[((1 << stages) + level) >> (stage + 1)] += _ONE
    return tree, stages, np.ones(levels, dtype=np.uint64)


@njit(cache=True)
def encode_order(codes: Any, levels: int, out: Bytes) -> Any:
    """Write the code of `codes`, each below `levels`, into `out` and return its length."""
    tree, stages, seen = _unseen(levels)
    low, span, place, total = _ZERO, _ALL, 0, np.uint64(levels)
    for level in codes:
        below, node = _ZERO, 1
        for stage in range(stages - 1, -1, -1):
            upper = level >> stage & 1
            if upper:
                below += tree[node]
            else:
                tree[node] += _ONE
            node = 2 * node + upper
        part = span // total
        before = low
        low += part * below
        span = part * seen[level]
        seen[level] += _ONE
        total += _ONE
        if low < before:
            _carry(out, place)
        while span < _LOW:
            out[place] = low >> _TOP
            place += 1
            low <<= _EIGHT
            span <<= _EIGHT
    return _finish(low, span, out, place)


@njit(cache=True)
def decode_order(code: Bytes, count: int, levels: int) -> Any:
    """Return the `count` numbers below `levels` that `code` stands for."""
    tree, stages, seen = _unseen(levels)
    number, place = _start(code), 8
    span, total = _ALL, np.uint64(levels)
    codes = np.empty(count, dtype=np.int64)
    for k in range(count):
        part = span // total
        number = min(number, part * total - _ONE)  # of a code that nobody wrote
        node = 1
        for _ in range(stages):
            lower = part * tree[node]
            if number < lower:
                tree[node] += _ONE
                node = 2 * node
            else:
                number -= lower
                node = 2 * node + 1
        level = node - (1 << stages)
        codes[k] = level
        span = part * seen[level]
        seen[level] += _ONE
        total += _ONE
        while span < _LOW:
            number <<= _EIGHT
            if place < len(code):
                number |= np.uint64(code[place])
            place += 1
            span <<= _EIGHT
    return codes
