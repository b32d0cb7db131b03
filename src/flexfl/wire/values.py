"""Numbers as bytes, and small whole numbers as bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import IntArray

Values = NDArray[Any]

_STORED = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}


def pack(values: Values, form: str) -> bytes:
    """Return the bytes of `values` in `form`; they must be numbers of that form."""
    if form == "bfloat16":  # the upper half of a float32
        stored: Values = (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype("<u2")
    else:
        stored = values.astype(_STORED[form])
    return stored.tobytes()


def unpack(data: bytes | memoryview, form: str) -> Values:
    """Return the values in `data`: float64 as such, all others as float32."""
    stored = np.frombuffer(data, dtype=_STORED[form])
    if form == "bfloat16":
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float64 if form == "float64" else np.float32)


def code_bits(levels: int) -> int:
    """Return how many bits name one of so many levels."""
    return max(0, (levels - 1).bit_length())


def pack_codes(codes: IntArray, bits: int) -> bytes:
    """Return whole numbers below 2^bits, one after the other, lowest bit first.

    >>> pack_codes(np.array([1, 2, 3]), 2)
    b'9'
    """
    if not bits:
        return b""
    places = (codes[:, None] >> np.arange(bits)) & 1
    return np.packbits(places.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack_codes(data: bytes | memoryview, count: int, bits: int) -> IntArray:
    """Return the `count` numbers that `pack_codes` wrote."""
    if not bits:
        return np.zeros(count, dtype=np.int64)
    places = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count * bits, bitorder="little")
    return np.asarray(places.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits)))
