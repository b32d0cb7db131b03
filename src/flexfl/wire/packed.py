"""Plain values (bool, int, float, str, list, dict) as few bytes, and back.

A value begins with a byte that says what it is. Small whole numbers and the words of the protocol are that
one byte; a float takes 5 bytes where float32 holds it exactly, else 9. What is read comes from others: every
length is checked before it is used.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from flexfl.wire.sparse import WireError

WORDS = (
    *("question", "answer", "hello", "ready", "restarted", "run", "client", "life", "replaces", "iteration"),
    *("version", "number", "made_in", "behind", "last", "metrics", "first", "acknowledgement", "evaluate"),
    *("queues", "accepted", "refused", "computed", "compute_prob", "compute_objective", "compute_cost"),
    *("compute_spent", "compute_queue", "batch_loss", "uplink_components", "uplink_bytes", "uplink_cost"),
    *("uplink_queue", "uplink_objective", "total.compute_spent", "total.uplink_cost", "total.compute_cost"),
    *("train_loss", "train_accuracy", "samples", "place", "clients", "importance", "dim", "model", "fault"),
    *("retry", "compute", "uplink", "downlink", "learning_rate"),
)
"""Words that are sent as their place in this list; other words are spelt. Only ever add at the end."""
_PLACES = {word: place for place, word in enumerate(WORDS)}
_SMALL, _WORD, _MOST_WORDS = 0x00, 0x80, 0x40
_FALSE, _TRUE, _WHOLE, _NEGATIVE, _DOUBLE, _SINGLE, _WHOLE_FLOAT, _MINUS_FLOAT = range(0xC0, 0xC8)
_TEXT, _LIST, _DICT = range(0xC8, 0xCB)
_DEEPEST = 8
_F4, _F8 = struct.Struct("<f"), struct.Struct("<d")
_EXACT = 2.0**53


def pack(value: Any) -> bytes:
    """Return a value as bytes.

    >>> pack({"iteration": 300, "metrics": {"computed": 1.0}}).hex()
    'ca0289c2ac028fca0196c601'
    >>> unpack(pack([0.5, "north", -3]))
    [0.5, 'north', -3]

    Raises:
        WireError: it is not a plain value, or not finite.
    """
    parts: list[bytes] = []
    _write(value, parts, 0)
    return b"".join(parts)


def varint(number: int) -> bytes:
    """Return a number ≥ 0 in groups of seven bits, the low ones first (LEB128)."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number below 2**64 that begins at `at`, and where it ends.

    Raises:
        WireError: there is none.
    """
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >= 2**64:
                break
            return number, at
    raise WireError("message has a number that does not end, or is too large")


def _write(value: Any, parts: list[bytes], depth: int) -> None:
    if depth > _DEEPEST:
        raise WireError("message has too many levels")
    if isinstance(value, bool):
        parts.append(bytes([_TRUE if value else _FALSE]))
    elif isinstance(value, int):
        _write_whole(value, parts)
    elif isinstance(value, float):
        _write_float(value, parts)
    elif isinstance(value, str):
        _write_text(value, parts)
    elif isinstance(value, list | tuple):
        parts += [bytes([_LIST]), varint(len(value))]
        for entry in value:
            _write(entry, parts, depth + 1)
    elif isinstance(value, dict):
        parts += [bytes([_DICT]), varint(len(value))]
        for key, entry in value.items():
            _write_text(key, parts)
            _write(entry, parts, depth + 1)
    else:
        raise WireError(f"message must have plain values, got {type(value).__name__}")


def _write_whole(value: int, parts: list[bytes]) -> None:
    if not -(2**64) <= value < 2**64:
        raise WireError(f"message must have whole numbers below 2**64, got {value}")
    if 0 <= value < _WORD:
        parts.append(bytes([_SMALL + value]))
    else:
        parts += [bytes([_WHOLE if value >= 0 else _NEGATIVE]), varint(value if value >= 0 else -1 - value)]


def _write_float(value: float, parts: list[bytes]) -> None:
    if not math.isfinite(value):
        raise WireError(f"message must have finite numbers, got {value}")
    if value.is_integer() and abs(value) < _EXACT:
        negative = math.copysign(1.0, value) < 0
        found = bytes([_MINUS_FLOAT if negative else _WHOLE_FLOAT]) + varint(int(abs(value)))
    else:
        found = bytes([_DOUBLE]) + _F8.pack(value)
    if abs(value) <= 3e38 and len(found) > 1 + _F4.size and _F4.unpack(short := _F4.pack(value))[0] == value:
        found = bytes([_SINGLE]) + short
    parts.append(found)


def _write_text(value: str, parts: list[bytes]) -> None:
    place = _PLACES.get(value)
    if place is not None and place < _MOST_WORDS:
        parts.append(bytes([_WORD + place]))
    else:
        text = value.encode()
        parts += [bytes([_TEXT]), varint(len(text)), text]


def unpack(data: bytes) -> Any:
    """Return the value in `data`, which may come from anyone.

    Raises:
        WireError: `data` is not one value as `pack` writes it.
    """
    value, at = _read(data, 0, 0)
    if at != len(data):
        raise WireError(f"message has {len(data) - at} bytes too many in its header")
    return value


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if at >= len(data) or depth > _DEEPEST:
        raise WireError("message ends within its header, or has too many levels")
    kind, at = data[at], at + 1
    if kind < _WORD:
        return kind, at
    if kind < _WORD + _MOST_WORDS:
        if kind - _WORD >= len(WORDS):
            raise WireError(f"message has the word number {kind - _WORD}, which is not known")
        return WORDS[kind - _WORD], at
    if kind in (_FALSE, _TRUE):
        return kind == _TRUE, at
    if kind in (_DOUBLE, _SINGLE):
        return _read_float(data, at, _F8 if kind == _DOUBLE else _F4)
    number, at = read_varint(data, at)
    if kind == _WHOLE:
        return number, at
    if kind == _NEGATIVE:
        return -1 - number, at
    if kind in (_WHOLE_FLOAT, _MINUS_FLOAT):
        return math.copysign(float(number), 1.0 if kind == _WHOLE_FLOAT else -1.0), at
    if kind == _TEXT:
        return _read_text(data, at, number)
    if kind in (_LIST, _DICT):
        return _read_entries(data, at, number, depth, named=kind == _DICT)
    raise WireError(f"message has a value of unknown kind {kind:#x}")


def _read_float(data: bytes, at: int, form: struct.Struct) -> tuple[float, int]:
    if at + form.size > len(data):
        raise WireError("message ends within a number")
    return float(form.unpack_from(data, at)[0]), at + form.size


def _read_text(data: bytes, at: int, size: int) -> tuple[str, int]:
    if size > len(data) - at:
        raise WireError("message ends within a word")
    try:
        return data[at : at + size].decode(), at + size
    except UnicodeDecodeError as error:
        raise WireError("message has a word that is not UTF-8") from error


def _read_entries(data: bytes, at: int, count: int, depth: int, *, named: bool) -> tuple[Any, int]:
    if count > len(data) - at:
        raise WireError(f"message announces {count} entries, which it cannot have")
    entries: list[Any] = []
    keys: list[str] = []
    for _ in range(count):
        if named:
            key, at = _read(data, at, depth + 1)
            if not isinstance(key, str):
                raise WireError("message has a name that is not a word")
            keys.append(key)
        value, at = _read(data, at, depth + 1)
        entries.append(value)
    if not named:
        return entries, at
    if len(set(keys)) < len(keys):
        raise WireError("message has a name twice")
    return dict(zip(keys, entries, strict=True)), at
