"""Numbers as bytes, and signs as bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray

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


def pack_signs(negative: BoolArray) -> bytes:
    """Return a bit for each, lowest first.

    >>> pack_signs(np.array([True, False, True])).hex()
    '05'
    """
    return np.packbits(negative, bitorder="little").tobytes()


def unpack_signs(data: bytes | memoryview, count: int) -> BoolArray:
    """Return the `count` bits that `pack_signs` wrote."""
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count, bitorder="little")
    return bits.view(np.bool_)
