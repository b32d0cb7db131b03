"""The range coder of `wire.subset` in plain Python, for installs without numba: the same bytes as `coder`.

It takes at least thirty times as long as the compiled one (docs/howto/deploy.md): fit for a client, which
codes one message in an iteration.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import IntArray

Bytes = NDArray[np.uint8]

_ALL = 2**64 - 1
_LOW = 2**48


def encode(indices: IntArray, dim: int, out: Bytes) -> int:
    """Write the code into `out` and return its length.

    The code is a number in [low, low + span): a chosen component takes the lower part.
    """
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
    written += _shortest(low, span, written)
    out[: len(written)] = written
    return len(written)


def _shortest(low: int, span: int, written: bytearray) -> bytes:
    """Return the shortest number in [low, low + span), after a carry into `written` if it has overflowed."""
    for length in range(1, 9):
        rest = (1 << (64 - 8 * length)) - 1
        number = (low + rest) & ~rest
        if number - low < span:
            if number > _ALL:
                _carry(written)
            return (number & _ALL).to_bytes(8, "big")[:length]
    raise AssertionError("eight bytes write any number")


def _carry(written: bytearray) -> None:
    """Add one to the number that is written."""
    place = len(written) - 1
    while written[place] == 255:
        written[place] = 0
        place -= 1
    written[place] += 1


def decode(code: Bytes, count: int, dim: int) -> IntArray:
    """Return the `count` indices below `dim` that `code` stands for."""
    rest = iter(code.tolist())
    number = 0
    for _ in range(8):
        number = number << 8 | next(rest, 0)
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
