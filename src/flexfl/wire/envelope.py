"""Encoding of messages with named fields and vectors.

    0xFE · version u8 · header length (LEB128) · header · blobs · CRC-32 u32 of all before it, little-endian

The header has the message's kind, its fields, and the length of each blob, as `wire.packed` writes them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flexfl.wire.packed import pack, read_varint, unpack, varint
from flexfl.wire.sparse import WireError

_END = struct.Struct("<I")
_MAGIC, _VERSION = 0xFE, 2
_SHORTEST = 2 + 1 + 4 + _END.size
_LONGEST_HEADER = 1 << 16
MOST_BLOBS = 1 << 12
_LARGEST_BLOB = 1 << 40


@dataclass(frozen=True)
class Envelope:
    """A decoded message; `fields` are plain values, `blobs` arbitrary bytes."""

    kind: str
    fields: dict[str, Any]
    blobs: tuple[bytes, ...] = ()


def seal(kind: str, fields: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Encode a message.

    Args:
        kind: Kind of the message.
        fields: Plain values: bool, int, float, str, lists, and tables of them.
        blobs: Arbitrary bytes, such as encoded vectors.

    Raises:
        WireError: The message is too large.

    >>> unseal(seal("ask", {"iteration": 3}, [b"vector"]))
    Envelope(kind='ask', fields={'iteration': 3}, blobs=(b'vector',))
    """
    header = pack([kind, fields, [len(blob) for blob in blobs]])
    if len(header) > _LONGEST_HEADER or len(blobs) > MOST_BLOBS:
        raise WireError(f"message has too much in its header: {len(header)} bytes, {len(blobs)} blobs")
    body = b"".join([bytes([_MAGIC, _VERSION]), varint(len(header)), header, *blobs])
    return body + _END.pack(zlib.crc32(body))


def unseal(data: bytes) -> Envelope:
    """Decode a message, which may come from anyone: every length is checked before it is used.

    Raises:
        WireError: The bytes are not a valid message.
    """
    if len(data) < _SHORTEST:
        raise WireError(f"message must have at least {_SHORTEST} bytes, got {len(data)}")
    if data[0] != _MAGIC:
        raise WireError(f"message has an unknown header {bytes(data[:8])!r}")
    if data[1] != _VERSION:
        raise WireError(f"message must be of version {_VERSION}, got {data[1]}")
    end = len(data) - _END.size
    if zlib.crc32(data[:end]) != _END.unpack_from(data, end)[0]:
        raise WireError("message fails its checksum")
    length, begin = read_varint(data[:end], 2)
    if length > min(_LONGEST_HEADER, end - begin):
        raise WireError(f"message announces a header of {length} bytes, which it cannot have")
    kind, fields, sizes = _header(data[begin : begin + length])
    begin += length
    if begin + sum(sizes) != end:
        raise WireError(f"message must have {sum(sizes)} bytes of blobs, got {end - begin}")
    blobs = []
    for size in sizes:
        blobs.append(bytes(data[begin : begin + size]))
        begin += size
    return Envelope(kind, fields, tuple(blobs))


def _header(data: bytes) -> tuple[str, dict[str, Any], list[int]]:
    header = unpack(data)
    if not isinstance(header, list) or [type(part) for part in header] != [str, dict, list]:
        raise WireError("message must have kind, fields and sizes in its header")
    kind, fields, sizes = header
    if len(sizes) > MOST_BLOBS or not all(type(size) is int and 0 <= size < _LARGEST_BLOB for size in sizes):
        raise WireError("message announces blobs of impossible sizes")
    return kind, fields, sizes
