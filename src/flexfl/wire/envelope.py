"""Encoding of messages with named fields and vectors.

    magic "FXEN" · version u8 · 0 u8 ×3 · header length u32 · header (JSON, UTF-8) · blobs ·
    CRC-32 u32 of all before it

The header has the message's kind, its fields, and the length of each blob. All little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flexfl.wire.sparse import WireError

_START = struct.Struct("<4sB3xI")
_END = struct.Struct("<I")
_MAGIC, _VERSION = b"FXEN", 1
_LONGEST_HEADER = 1 << 16
MOST_BLOBS = 1 << 12
_LARGEST_BLOB = 1 << 40


@dataclass(frozen=True)
class Envelope:
    """A decoded message; `fields` are plain JSON values, `blobs` arbitrary bytes."""

    kind: str
    fields: dict[str, Any]
    blobs: tuple[bytes, ...] = ()


def seal(kind: str, fields: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Encode a message.

    Args:
        kind: Kind of the message.
        fields: Plain JSON values.
        blobs: Arbitrary bytes, such as encoded vectors.

    Raises:
        WireError: The message is too large.

    >>> unseal(seal("ask", {"iteration": 3}, [b"vector"]))
    Envelope(kind='ask', fields={'iteration': 3}, blobs=(b'vector',))
    """
    header = {"kind": kind, "fields": fields, "sizes": [len(blob) for blob in blobs]}
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > _LONGEST_HEADER or len(blobs) > MOST_BLOBS:
        raise WireError(f"message has too much in its header: {len(text)} bytes, {len(blobs)} blobs")
    body = b"".join([_START.pack(_MAGIC, _VERSION, len(text)), text, *blobs])
    return body + _END.pack(zlib.crc32(body))


def unseal(data: bytes) -> Envelope:
    """Decode a message, which may come from anyone: every length is checked before it is used.

    Raises:
        WireError: The bytes are not a valid message.
    """
    if len(data) < _START.size + _END.size:
        raise WireError(f"message must have at least {_START.size + _END.size} bytes, got {len(data)}")
    magic, version, length = _START.unpack_from(data)
    if magic != _MAGIC:
        raise WireError(f"message has an unknown header {bytes(data[:8])!r}")
    if version != _VERSION:
        raise WireError(f"message must be of version {_VERSION}, got {version}")
    if zlib.crc32(data[: -_END.size]) != _END.unpack_from(data, len(data) - _END.size)[0]:
        raise WireError("message fails its checksum")
    if length > min(_LONGEST_HEADER, len(data) - _START.size - _END.size):
        raise WireError(f"message announces a header of {length} bytes, which it cannot have")
    begin = _START.size + length
    kind, fields, sizes = _header(data[_START.size : begin])
    if begin + sum(sizes) + _END.size != len(data):
        raise WireError(f"message must have {sum(sizes)} bytes of blobs, got {len(data) - begin - _END.size}")
    blobs = []
    for size in sizes:
        blobs.append(bytes(data[begin : begin + size]))
        begin += size
    return Envelope(kind, fields, tuple(blobs))


def _header(text: bytes) -> tuple[str, dict[str, Any], list[int]]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"message has a header that is not JSON ({error})") from error
    if not isinstance(header, dict) or set(header) != {"kind", "fields", "sizes"}:
        raise WireError("message must have kind, fields and sizes in its header")
    kind, fields, sizes = header["kind"], header["fields"], header["sizes"]
    if not isinstance(kind, str) or not isinstance(fields, dict) or not isinstance(sizes, list):
        raise WireError("message has a header of the wrong types")
    if len(sizes) > MOST_BLOBS or not all(type(size) is int and 0 <= size < _LARGEST_BLOB for size in sizes):
        raise WireError("message announces blobs of impossible sizes")
    return kind, fields, sizes
