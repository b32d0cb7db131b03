"""Encoding of vectors: the nonzero components and their values, or the dense vector if that is shorter.

    magic "FXFL" · version u8 · form u8 (1 sparse, 2 dense) · values u8 (1 float32, 2 float16,
    3 bfloat16, 4 float64) · 0 u8 · dim u32 · count u32 · CRC-32 u32 of all but itself ·
    the code of the indices (sparse only, `wire.subset`) · values

All little-endian. The length is determined by dim, count and the kind of values. A zero vector takes
no bytes.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import IntArray
from flexfl.errors import FlexFLError
from flexfl.wire.subset import decode_subset, encode_subset, subset_bytes
from flexfl.wire.values import SIZES, fits, pack, rounded, unpack

_HEADER = struct.Struct("<4sBBBBIII")
_MAGIC, _VERSION, _SPARSE, _DENSE = b"FXFL", 2, 1, 2
_KINDS = {1: "float32", 2: "float16", 3: "bfloat16", 4: "float64"}
_CODES = {kind: code for code, kind in _KINDS.items()}
_LARGEST_TABLE = 1 << 20


class WireError(FlexFLError):
    """Bytes that are not a valid message, or a vector that cannot be encoded."""


def message_bytes(num_sent: IntArray, dim: int, values: str) -> IntArray:
    """Return the length of messages that `encode` makes of k components.

    Args:
        num_sent: Numbers of components k, (...,).
        dim: Number of parameters D.
        values: Kind of values, as in `encode`.
    """
    k = np.asarray(num_sent)
    return _table(dim, values)[k] if dim <= _LARGEST_TABLE else _sizes(k, dim, values)


@lru_cache(maxsize=4)
def _table(dim: int, values: str) -> IntArray:
    """Return the sizes for every k, cached: the engine needs them in every iteration."""
    return _sizes(np.arange(dim + 1), dim, values)


def _sizes(k: IntArray, dim: int, values: str) -> IntArray:
    body = np.minimum(subset_bytes(k, dim) + k * SIZES[values], dim * SIZES[values])
    return np.where(k > 0, _HEADER.size + body, 0)


def sendable(message: NDArray[Any], values: str) -> NDArray[Any]:
    """Return `message` as the receiver decodes it, with its values rounded to `values`.

    The sender keeps the rest in its residual. A message with a value too large for that kind is not
    rounded.
    """
    exact = "float64" if message.dtype.itemsize == 8 else "float32"
    return rounded(message, values if fits(message, values) else exact)


def encode(message: NDArray[Any], values: str | None = None) -> bytes:
    """Encode a vector, (D,).

    Args:
        message: The vector.
        values: The kind to round values to, such as "float16"; by default they are exact.

    Raises:
        WireError: The vector is not finite.
    """
    if not np.isfinite(message).all():
        raise WireError("message must be finite, got NaN or infinity")
    exact = "float64" if message.dtype.itemsize == 8 else "float32"
    kind = exact if values is None or not fits(message, values) else values
    message = rounded(message, kind)  # values rounded to zero are not sent
    indices = np.flatnonzero(message)
    count, dim = len(indices), len(message)
    if not count:
        return b""
    sparse = int(subset_bytes(np.asarray(count), dim)) + count * SIZES[kind] < dim * SIZES[kind]
    form = _SPARSE if sparse else _DENSE
    body = encode_subset(indices, dim) + pack(message[indices], kind) if sparse else pack(message, kind)
    start = _HEADER.pack(_MAGIC, _VERSION, form, _CODES[kind], 0, dim, count, 0)[:-4]
    return b"".join([start, struct.pack("<I", zlib.crc32(start + body)), body])


def decode(data: bytes, dim: int) -> NDArray[Any]:
    """Decode a vector, (D,), from bytes that may come from anyone: everything is checked.

    Raises:
        WireError: The bytes are not a valid message for `dim` parameters.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"message must have a header of {_HEADER.size} bytes, got {len(data)}")
    magic, version, form, code, zero, sender_dim, count, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or form not in (_SPARSE, _DENSE) or code not in _KINDS or zero:
        raise WireError(f"message has an unknown header {bytes(data[:8])!r}")
    if version != _VERSION:
        raise WireError(f"message must be of version {_VERSION}, got {version}")
    if sender_dim != dim or not 0 < count <= dim:
        raise WireError(f"message must be for {dim} parameters, got {count} of {sender_dim}")
    if zlib.crc32(body, zlib.crc32(data[: _HEADER.size - 4])) != crc:
        raise WireError("message fails its checksum")
    kind = _KINDS[code]
    index_bytes = int(subset_bytes(np.asarray(count), dim)) if form == _SPARSE else 0
    expected = index_bytes + count * SIZES[kind] if form == _SPARSE else dim * SIZES[kind]
    if len(body) != expected:
        raise WireError(f"message must have {expected} bytes after its header, got {len(body)}")
    found = unpack(body[index_bytes:], kind)
    if not np.isfinite(found).all():
        raise WireError("message holds NaN or infinity")
    if form == _DENSE:
        if np.count_nonzero(found) != count:
            raise WireError(f"message must hold {count} components, got {np.count_nonzero(found)}")
        return found
    vector = np.zeros(dim, dtype=found.dtype)
    vector[decode_subset(body[:index_bytes], count, dim)] = found
    return vector
