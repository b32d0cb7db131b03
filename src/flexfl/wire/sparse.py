"""A message as bytes and back: which components, then their values; or the dense vector if shorter.

    magic "FXFL" · version u8 · layout u8 (1 sparse, 2 dense, 3 levels) · values u8 (1 float32, 2 float16,
    3 bfloat16, 4 float64) · table u8 (of levels: 0 exact, 1 short, 2 even; else 0) · dim u32 · count u32 ·
    CRC-32 u32 of all but itself · body

The body of a sparse message is the code of its places (`wire.subset`) and its values; of a dense one the
values; of levels their number u16, the table of them (`wire.table`), the code of the places, a bit for each
value, set if it is negative, and the code of which level each value has (`wire.order`). All little-endian.
The length is `Message.nbytes`; sending nothing takes no bytes at all.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.compress.message import (
    HEADER_BYTES,
    VALUE_BYTES,
    Message,
    order_bytes,
    subset_bytes,
    table_bytes,
)
from flexfl.errors import FlexFLError
from flexfl.wire.order import decode_order, encode_order
from flexfl.wire.subset import decode_subset, encode_subset
from flexfl.wire.table import pack_table, unpack_table
from flexfl.wire.values import pack, pack_signs, unpack, unpack_signs

_HEADER = struct.Struct("<4sBBBBIII")
_COUNT = struct.Struct("<H")
_MAGIC, _VERSION, _SPARSE, _DENSE, _LEVELS = b"FXFL", 4, 1, 2, 3
_FORMS = {1: "float32", 2: "float16", 3: "bfloat16", 4: "float64"}
_CODES = {form: code for code, form in _FORMS.items()}
_TABLES = ("exact", "short", "even")
_MOST_LEVELS = (1 << 16) - 1
assert _HEADER.size == HEADER_BYTES


class WireError(FlexFLError):
    """Bytes that are not a message."""


def encode(message: Message) -> bytes:
    """Return the bytes of a message; as many as `message.nbytes`.

    Raises:
        WireError: a value is NaN, infinite or zero, or is not a number of the message's form.
    """
    if not message.components:
        return b""
    if not np.isfinite(message.values).all():
        raise WireError("message must be finite, got NaN or infinity")
    if not message.values.all():
        raise WireError("message must hold components that are not zero")
    layout, form, table, body = _levels_body(message) if message.form == "levels" else _values_body(message)
    code = _CODES[form]
    start = _HEADER.pack(_MAGIC, _VERSION, layout, code, table, message.dim, message.components, 0)[:-4]
    return b"".join([start, struct.pack("<I", zlib.crc32(start + body)), body])


def _values_body(message: Message) -> tuple[int, str, int, bytes]:
    """Return the layout, the form of the values, 0, and the body."""
    form = message.form
    if not np.array_equal(unpack(pack(message.values, form), form), message.values):
        raise WireError(f"message has a value that is not a number of its form, {form}")
    value, places = VALUE_BYTES[form], encode_subset(message.indices, message.dim)
    if len(places) + message.components * value < message.dim * value:
        return _SPARSE, form, 0, places + pack(message.values, form)
    return _DENSE, form, 0, pack(message.dense(), form)


def _levels_body(message: Message) -> tuple[int, str, int, bytes]:
    """Return the layout, the form of the levels, how they are coded, and the body."""
    levels, codes = message.levels, message.codes
    if levels is None or codes is None or message.table not in _TABLES:
        raise WireError(f"message must have levels, codes and a table among {', '.join(_TABLES)}")
    number, form = len(levels), levels.dtype.name
    if not 0 < number <= _MOST_LEVELS or form not in ("float32", "float64"):
        rule = f"from 1 to {_MOST_LEVELS} levels, float32 or float64"
        raise WireError(f"message must have {rule}, got {number} of {form}")
    _check_levels(levels)
    if codes.shape != message.values.shape or codes.min() < 0 or codes.max() >= number:
        raise WireError(f"message of {number} levels must have a code below that for each value")
    if not np.array_equal(levels[codes], np.abs(message.values)):
        raise WireError("message has a value that is not the level of its code")
    table = pack_table(levels, message.table)
    if not np.array_equal(unpack_table(table, number, message.table, form), levels):
        raise WireError(f"message has a level that its table, {message.table}, cannot hold")
    parts = [
        _COUNT.pack(number) + table,
        encode_subset(message.indices, message.dim),
        pack_signs(message.values < 0),
        encode_order(codes, number),
    ]
    return _LEVELS, form, _TABLES.index(message.table), b"".join(parts)


def _check_levels(levels: NDArray[Any]) -> None:
    if not ((levels > 0) & np.isfinite(levels)).all():
        raise WireError("message must have levels that are finite and > 0")


def decode(data: bytes, dim: int) -> Message:
    """Return the message in `data`, which is for `dim` parameters; trusts nothing.

    Raises:
        WireError: it is not such a message.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"message must have a header of {_HEADER.size} bytes, got {len(data)}")
    magic, version, layout, code, table, sender_dim, count, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    known = layout in (_SPARSE, _DENSE, _LEVELS) and code in _FORMS
    if magic != _MAGIC or not known or table >= (len(_TABLES) if layout == _LEVELS else 1):
        raise WireError(f"message has an unknown header {bytes(data[:8])!r}")
    if version != _VERSION:
        raise WireError(f"message must be of version {_VERSION}, got {version}")
    if sender_dim != dim or not 0 < count <= dim:
        raise WireError(f"message must be for {dim} parameters, got {count} of {sender_dim}")
    if zlib.crc32(body, zlib.crc32(data[: _HEADER.size - 4])) != crc:
        raise WireError("message fails its checksum")
    if layout == _LEVELS:
        return _read_levels(body, _FORMS[code], _TABLES[table], count, dim)
    read = _read_sparse if layout == _SPARSE else _read_dense
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


def _read_levels(body: memoryview, form: str, table: str, count: int, dim: int) -> Message:
    if len(body) < _COUNT.size or form not in ("float32", "float64"):
        raise WireError("message of levels must say how many there are, as float32 or float64")
    (number,) = _COUNT.unpack_from(body)
    if not number:
        raise WireError("message must have at least one level")
    places = table_bytes(number, table, form)
    signs = places + int(subset_bytes(count, dim))
    order = signs + (count + 7) // 8
    if len(body) < order:
        raise WireError(f"message must have at least {order} bytes after its header, got {len(body)}")
    levels = unpack_table(body[_COUNT.size : places], number, table, form)
    _check_levels(levels)
    codes = decode_order(body[order:], count, number)
    _expect(body, order + int(order_bytes(np.bincount(codes, minlength=number))))
    indices, negative = decode_subset(body[places:signs], count, dim), unpack_signs(body[signs:order], count)
    return Message.of_levels(dim, indices, negative, codes, levels, table)


def _expect(body: memoryview, size: int) -> None:
    if len(body) != size:
        raise WireError(f"message must have {size} bytes after its header, got {len(body)}")
