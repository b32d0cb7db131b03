"""The range coder of `wire.subset` and `wire.order` in plain Python, for installs without numba.

It writes the same bytes as `coder` and takes at least thirty times as long (docs/howto/deploy.md): fit for a
client, which codes one message in an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import IntArray

Bytes = NDArray[np.uint8]

_ALL = 2**64 - 1
_LOW = 2**56


def encode_subset(indices: IntArray, dim: int, out: Bytes) -> int:
    """Write the code into `out` and return its length; a chosen component takes the lower part."""
    written = bytearray()
    low, span = 0, _ALL
    ones, chosen = len(indices), iter(indices.tolist())
    coming = next(chosen, -1)
    for j in range(dim):
        if ones == 0 or ones == dim - j:
            break  # none or all of the rest are chosen
        part = span // (dim - j) * ones
        if coming == j:
            span = part
            ones -= 1
            coming = next(chosen, -1)
        else:
            low += part
            span -= part
            if low > _ALL:
                low &= _ALL
                _carry(written)
        while span < _LOW:
            written.append(low >> 56)
            low = (low << 8) & _ALL
            span <<= 8
    return _finish(low, span, written, out)


def _finish(low: int, span: int, written: bytearray, out: Bytes) -> int:
    """Write the shortest number in [low, low + span) and return the length of the code."""
    for length in range(1, 9):
        rest = (1 << (64 - 8 * length)) - 1
        number = (low + rest) & ~rest
        if number - low < span:
            if number > _ALL:
                _carry(written)
            written += (number & _ALL).to_bytes(8, "big")[:length]
            break
    out[: len(written)] = written
    return len(written)


def _carry(written: bytearray) -> None:
    """Add one to the number that is written."""
    place = len(written) - 1
    while written[place] == 255:
        written[place] = 0
        place -= 1
    written[place] += 1


def _start(code: Bytes) -> tuple[int, Iterator[int]]:
    """Return the number in the first eight bytes of a code, and the bytes that follow."""
    rest = iter(code.tolist())
    number = 0
    for _ in range(8):
        number = number << 8 | next(rest, 0)
    return number, rest


def decode_subset(code: Bytes, count: int, dim: int) -> IntArray:
    """Return the `count` indices below `dim` that `code` stands for."""
    number, rest = _start(code)
    indices: list[int] = []
    span, ones = _ALL, count
    for j in range(dim):
        if ones == 0:
            break
        if ones == dim - j:
            indices += range(j, dim)
            break
        part = span // (dim - j) * ones
        if number < part:
            span = part
            ones -= 1
            indices.append(j)
        else:
            number -= part
            span -= part
        while span < _LOW:
            number = (number << 8 | next(rest, 0)) & _ALL
            span <<= 8
    return np.array(indices, dtype=np.int64)


def _unseen(levels: int) -> tuple[list[int], int, list[int]]:
    """Return a tree over the levels, the number of its stages, and how often each level counts: once.

    A node, 1 at the top and 2n, 2n + 1 below n, holds the sum of the counts in its lower half.
    """
    stages = (levels - 1).bit_length()
    tree = [0] * (1 << stages)
    for level in range(levels):
        for stage in range(stages):
            if not level >> stage & 1:
                tree[((1 << stages) + level) >> (stage + 1)] += 1
    return tree, stages, [1] * levels


def encode_order(codes: IntArray, levels: int, out: Bytes) -> int:
    """Write the code of `codes`, each below `levels`, into `out` and return its length."""
    tree, stages, seen = _unseen(levels)
    written = bytearray()
    low, span, total = 0, _ALL, levels
    for level in codes.tolist():
        below, node = 0, 1
        for stage in range(stages - 1, -1, -1):
            upper = level >> stage & 1
            if upper:
                below += tree[node]
            else:
                tree[node] += 1
            node = 2 * node + upper
        part = span // total
        low += part * below
        span = part * seen[level]
        seen[level] += 1
        total += 1
        if low > _ALL:
            low &= _ALL
            _carry(written)
        while span < _LOW:
            written.append(low >> 56)
            low = (low << 8) & _ALL
            span <<= 8
    return _finish(low, span, written, out)


def decode_order(code: Bytes, count: int, levels: int) -> IntArray:
    """Return the `count` numbers below `levels` that `code` stands for."""
    tree, stages, seen = _unseen(levels)
    number, rest = _start(code)
    codes: list[int] = []
    span, total = _ALL, levels
    for _ in range(count):
        part = span // total
        number = min(number, part * total - 1)  # of a code that nobody wrote
        node = 1
        for _ in range(stages):
            lower = part * tree[node]
            if number < lower:
                tree[node] += 1
                node = 2 * node
            else:
                number -= lower
                node = 2 * node + 1
        level = node - (1 << stages)
        codes.append(level)
        span = part * seen[level]
        seen[level] += 1
        total += 1
        while span < _LOW:
            number = (number << 8 | next(rest, 0)) & _ALL
            span <<= 8
    return np.array(codes, dtype=np.int64)
