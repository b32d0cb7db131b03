"""A message as bytes and back: a header, then index–value pairs, or the dense vector if shorter.

    magic "FXFL" · version u8 · form u8 (1 sparse, 2 dense) · value bytes u8 · 0 u8 · dim u32 ·
    count u32 · CRC-32 u32 of all but itself · indices u32 (sparse only) · values

All little-endian. Sending nothing takes no bytes at all.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray
from flexfl.errors import FlexFLError

_HEADER = struct.Struct("<4sBBBBIII")
_MAGIC, _VERSION, _SPARSE, _DENSE = b"FXFL", 1, 1, 2
_VALUES: dict[int, np.dtype[np.floating[Any]]] = {4: np.dtype("<f4"), 8: np.dtype("<f8")}


class WireError(FlexFLError):
    """Bytes that are not a message."""


def message_bytes(num_sent: IntArray, dim: int, itemsize: int) -> IntArray:
    """How long `encode` makes a message of k components; tested to be the length of its bytes."""
    body = np.minimum(num_sent * (4 + itemsize), dim * itemsize)
    return np.where(np.asarray(num_sent) > 0, _HEADER.size + body, 0)


def encode(message: FloatArray) -> bytes:
    """The bytes of a message, given as the vector (D,) it adds."""
    indices = np.flatnonzero(message)
    if not len(indices):
        return b""
    itemsize = message.dtype.itemsize
    values = _VALUES[itemsize]
    if len(indices) * (4 + itemsize) < len(message) * itemsize:
        form, body = _SPARSE, indices.astype("<u4").tobytes() + message[indices].astype(values).tobytes()
    else:
        form, body = _DENSE, message.astype(values).tobytes()
    start = _HEADER.pack(_MAGIC, _VERSION, form, itemsize, 0, len(message), len(indices), 0)[:-4]
    return b"".join([start, struct.pack("<I", zlib.crc32(start + body)), body])


def decode(data: bytes, dim: int) -> NDArray[np.floating[Any]]:
    """The vector (D,) in `data`; trusts nothing."""
    if len(data) < _HEADER.size:
        raise WireError(f"message must have a header of {_HEADER.size} bytes, got {len(data)}")
    magic, version, form, itemsize, _, sender_dim, count, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or version != _VERSION or form not in (_SPARSE, _DENSE) or itemsize not in _VALUES:
        raise WireError(f"message has an unknown header {bytes(data[:8])!r}")
    if sender_dim != dim or count > dim:
        raise WireError(f"message must be for {dim} parameters, got {count} of {sender_dim}")
    if zlib.crc32(body, zlib.crc32(data[: _HEADER.size - 4])) != crc:
        raise WireError("message fails its checksum")
    expected = count * (4 + itemsize) if form == _SPARSE else dim * itemsize
    if len(body) != expected:
        raise WireError(f"message must have {expected} bytes after its header, got {len(body)}")
    if form == _DENSE:
        vector = np.frombuffer(body, dtype=_VALUES[itemsize]).copy()
    else:
        indices = np.frombuffer(body[: 4 * count], dtype="<u4").astype(np.int64)
        if np.any(np.diff(indices) <= 0) or (count and indices[-1] >= dim):
            raise WireError("message has indices that do not ascend, or lie outside the parameters")
        vector = np.zeros(dim, dtype=_VALUES[itemsize])
        vector[indices] = np.frombuffer(body[4 * count :], dtype=_VALUES[itemsize])
    if not np.all(np.isfinite(vector)):
        raise WireError("message holds NaN or infinity")
    return vector
