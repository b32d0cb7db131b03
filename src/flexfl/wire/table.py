"""The levels of a message as bytes and back; little-endian.

A table that is exact has each level; an even one the first, of which the others are multiples. A short one
has the exponent E of the largest level, i16, as `frexp` gives it, and for each level with the exponent e and
eight significant bits u16: (E − e) << 7 | the seven bits after the leading one.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.compress.message import even_levels
from flexfl.wire.values import pack, unpack

_FURTHEST = (1 << 9) - 1  # from the largest exponent to another one


def pack_table(levels: NDArray[Any], table: str) -> bytes:
    """Return the bytes of levels > 0; others come back from it where the table cannot hold them."""
    form = levels.dtype.name
    if table == "exact":
        return pack(levels, form)
    if table == "even":
        return pack(levels[:1], form)
    fraction, exponent = np.frexp(levels.astype(np.float64))
    largest = int(exponent.max())
    away = np.minimum(largest - exponent, _FURTHEST)
    bits = (fraction * 256.0).astype(np.int64) & 127
    coded = np.asarray(away << 7 | bits, dtype="<u2")
    return struct.pack("<h", largest) + coded.tobytes()


def unpack_table(data: bytes | memoryview, levels: int, table: str, form: str) -> NDArray[Any]:
    """Return so many levels; `data` must have the length that `table_bytes` returns, less their number."""
    if table == "exact":
        return unpack(data, form)
    with np.errstate(over="ignore", invalid="ignore"):  # the reader refuses what is not finite
        if table == "even":
            return even_levels(unpack(data, form)[0], levels)
        (largest,) = struct.unpack_from("<h", data)
        coded = np.frombuffer(data[2:], dtype="<u2").astype(np.int64)
        values = np.ldexp((128 + (coded & 127)) / 256.0, largest - (coded >> 7))
        return np.asarray(values.astype(form))
