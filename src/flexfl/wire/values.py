"""Encoding of numbers: exact, or rounded to 16 bits.

The rounding error is not lost: the sender keeps `values − rounded(values)` in its residual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one value of each kind."""
_STORED = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}


def pack(values: Values, kind: str) -> bytes:
    """Return the bytes of `values` as `kind`, whose range they must not exceed."""
    return _as_stored(values, kind).tobytes()


def unpack(data: bytes | memoryview, kind: str) -> Values:
    """Return the values in `data`, as float64 if that is their kind, else as float32."""
    stored = np.frombuffer(data, dtype=_STORED[kind])
    if kind == "bfloat16":  # the upper half of a float32
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float64 if kind == "float64" else np.float32)


def rounded(values: Values, kind: str) -> Values:
    """Return `values` as the receiver decodes them, in their original dtype.

    >>> rounded(np.array([1.0001, 3.0], dtype=np.float32), "float16")
    array([1., 3.], dtype=float32)
    """
    return unpack(pack(values, kind), kind).astype(values.dtype)


def fits(values: Values, kind: str) -> bool:
    """Return whether no value overflows as `kind`."""
    return bool(np.isfinite(unpack(pack(values, kind), kind)).all())


def _as_stored(values: Values, kind: str) -> Values:
    with np.errstate(over="ignore"):  # `fits` detects overflow
        if kind != "bfloat16":
            return values.astype(_STORED[kind])
        bits = values.astype("<f4").view("<u4")
    to_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.asarray(((bits + to_even) >> np.uint32(16)).astype("<u2"))
