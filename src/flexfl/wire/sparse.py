"""A message as bytes and back: which components, then their values; or the dense vector if shorter.

    magic "FXFL" · version u8 · layout u8 (1 sparse, 2 dense, 3 levels) · values u8 (1 float32, 2 float16,
    3 bfloat16, 4 float64) · 0 u8 · dim u32 · count u32 · CRC-32 u32 of all but itself · body

The body of a sparse message is the code of its places (`wire.subset`) and its values; of a dense one the
values; of levels the number of levels u16, the levels, the code of the places, and for each value which
level it is, ⌈log2 levels⌉ bits. All little-endian. The length is `Message.nbytes`;
sending nothing takes no bytes at all.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.compress.message import HEADER_BYTES, VALUE_BYTES, Message, subset_bytes
from flexfl.errors import FlexFLError
from flexfl.wire.subset import decode_subset, encode_subset
from flexfl.wire.values import code_bits, pack, pack_codes, unpack, unpack_codes

_HEADER = struct.Struct("<4sBBBBIII")
_COUNT = struct.Struct("<H")
_MAGIC, _VERSION, _SPARSE, _DENSE, _LEVELS = b"FXFL", 3, 1, 2, 3
_FORMS = {1: "float32", 2: "float16", 3: "bfloat16", 4: "float64"}
_CODES = {form: code for code, form in _FORMS.items()}
assert _HEADER.size == HEADER_BYTES


class WireError(FlexFLError):
    """Bytes that are not a message."""


def encode(message: Message) -> bytes:
    """Return the bytes of a message; as many as `message.nbytes`.

    Raises:
        WireError: a value is NaN or infinite, or is not a number of the message's form.
    """
    if not message.components:
        return b""
    if not np.isfinite(message.values).all():
        raise WireError("message must be finite, got NaN or infinity")
    if not message.values.all():
        raise WireError("message must hold components that are not zero")
    if message.levels is None and not np.array_equal(
        unpack(pack(message.values, message.form), message.form), message.values
    ):
        raise WireError(f"message has a value that is not a number of its form, {message.form}")
    places = encode_subset(message.indices, message.dim)
    if message.levels is not None:
        layout, form = _LEVELS, np.dtype(message.levels.dtype).name
        table = _COUNT.pack(len(message.levels)) + pack(message.levels, form)
        body = table + places + pack_codes(_level_of(message), code_bits(len(message.levels)))
    else:
        form, value = message.form, VALUE_BYTES[message.form]
        layout = _SPARSE if len(places) + message.components * value < message.dim * value else _DENSE
        body = places + pack(message.values, form) if layout == _SPARSE else pack(message.dense(), form)
    start = _HEADER.pack(_MAGIC, _VERSION, layout, _CODES[form], 0, message.dim, message.components, 0)[:-4]
    return b"".join([start, struct.pack("<I", zlib.crc32(start + body)), body])


def _level_of(message: Message) -> NDArray[Any]:
    """Return which level each value is."""
    levels = message.levels
    assert levels is not None
    order = np.argsort(levels, kind="stable")
    found = order[np.minimum(np.searchsorted(levels[order], message.values), len(levels) - 1)]
    if not np.array_equal(levels[found], message.values):
        raise WireError("message has a value that is none of its levels")
    return np.asarray(found)


def decode(data: bytes, dim: int) -> Message:
    """Return the message in `data`, which is for `dim` parameters; trusts nothing.

    Raises:
        WireError: it is not such a message.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"message must have a header of {_HEADER.size} bytes, got {len(data)}")
    magic, version, layout, code, zero, sender_dim, count, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or layout not in (_SPARSE, _DENSE, _LEVELS) or code not in _FORMS or zero:
        raise WireError(f"message has an unknown header {bytes(data[:8])!r}")
    if version != _VERSION:
        raise WireError(f"message must be of version {_VERSION}, got {version}")
    if sender_dim != dim or not 0 < count <= dim:
        raise WireError(f"message must be for {dim} parameters, got {count} of {sender_dim}")
    if zlib.crc32(body, zlib.crc32(data[: _HEADER.size - 4])) != crc:
        raise WireError("message fails its checksum")
    read = {_SPARSE: _read_sparse, _DENSE: _read_dense, _LEVELS: _read_levels}[layout]
    message = read(body, _FORMS[code], count, dim)
    if not np.isfinite(message.values).all():
        raise WireError("message holds NaN or infinity")
    return message


def _read_sparse(body: memoryview, form: str, count: int, dim: int) -> Message:
    places = int(subset_bytes(count, dim))
    _expect(body, places + count * VALUE_BYTES[form])
    return Message(dim, decode_subset(body[:places], count, dim), unpack(body[places:], form), form)


def _read_dense(body: memoryview, form: str, count: int, dim: int) -> Message:
    _expect(body, dim * VALUE_BYTES[form])
    vector = unpack(body, form)
    indices = np.flatnonzero(vector)
    if len(indices) != count:
        raise WireError(f"message must hold {count} components, got {len(indices)}")
    return Message(dim, indices, vector[indices], form)


def _read_levels(body: memoryview, form: str, count: int, dim: int) -> Message:
    if len(body) < _COUNT.size or form not in ("float32", "float64"):
        raise WireError("message of levels must say how many there are, as float32 or float64")
    (number,) = _COUNT.unpack_from(body)
    if not number:
        raise WireError("message must have at least one level")
    table, places, bits = number * VALUE_BYTES[form], int(subset_bytes(count, dim)), code_bits(number)
    _expect(body, _COUNT.size + table + places + -(-count * bits // 8))
    levels = unpack(body[_COUNT.size : _COUNT.size + table], form)
    rest = body[_COUNT.size + table :]
    codes = unpack_codes(rest[places:], count, bits)
    if (codes >= number).any():
        raise WireError(f"message has {number} levels, got the one at {int(codes.max())}")
    return Message(dim, decode_subset(rest[:places], count, dim), levels[codes], "levels", levels)


def _expect(body: memoryview, size: int) -> None:
    if len(body) != size:
        raise WireError(f"message must have {size} bytes after its header, got {len(body)}")
