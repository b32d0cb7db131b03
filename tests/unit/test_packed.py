"""Plain values as few bytes: they come back as they were, and nothing else is believed."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.wire.envelope import seal, unseal
from flexfl.wire.packed import WORDS, pack, read_varint, unpack, varint
from flexfl.wire.sparse import WireError

FINITE = st.floats(allow_nan=False, allow_infinity=False)
LEAF = st.booleans() | st.integers(-(2**63), 2**64 - 1) | FINITE | st.text() | st.sampled_from(WORDS)
VALUE = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def same(one: Any, other: Any) -> bool:
    """Equal, of the same types, and with the same signs of 0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return bool(one == other)


@given(VALUE)
def test_a_value_comes_back(value: Any) -> None:
    if depth(value) > 8:
        with pytest.raises(WireError, match="levels"):
            pack(value)
    else:
        assert same(unpack(pack(value)), value)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return max((1 + depth(entry) for entry in inner), default=0)


@given(st.binary(max_size=60))
def test_bytes_of_others_are_read_or_refused(data: bytes) -> None:
    try:
        value = unpack(data)
    except WireError:
        return
    if all(math.isfinite(number) for number in floats(value)):
        assert same(unpack(pack(value)), value)


def floats(value: Any) -> list[float]:
    if isinstance(value, float):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [number for entry in inner for number in floats(entry)]


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 1),
        (127, 1),
        (128, 3),
        (True, 1),
        ("iteration", 1),
        ("north", 7),
        (1.0, 2),
        (-2.0, 2),
        (0.5, 5),
        (0.1, 9),
        (1e300, 9),
        ({"metrics": {"computed": 1.0}}, 2 + 1 + 2 + 1 + 2),
    ],
)
def test_sizes(value: Any, size: int) -> None:
    assert len(pack(value)) == size


def test_the_words_keep_their_places() -> None:
    """A client of another version would read another word."""
    assert pack(["question", "answer", "metrics", "downlink"]).hex() == "c90480818fb1"
    assert len(WORDS) <= 64
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**64, None, b"bytes", [[[[[[[[[[1]]]]]]]]]], {"a": {1, 2}}]
)
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(WireError, match="message"):
        pack(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc4\x00",  # a float that ends
        b"\xc8\x05abc",  # a word that ends
        b"\xc8\x02\xff\xfe",  # not UTF-8
        b"\xc9\xff\xff\xff\xff\x0f",  # a list of 4 billion
        b"\xca\x01\x01\x01",  # a name that is a number
        b"\xca\x02\x80\x01\x80\x02",  # a name twice
        b"\xff\x00",
        b"\xbf",  # a word that is not known
        b"\x01\x02",  # more after it
        b"\xc2" + b"\xff" * 12,
        b"\xc9\x01" * 12 + b"\x01",
    ],
)
def test_damaged_values_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack(data)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=5))
def test_numbers_of_variable_length(number: int, rest: bytes) -> None:
    data = varint(number)
    assert read_varint(data + rest, 0) == (number, len(data))


def test_an_envelope_of_an_empty_answer_is_small() -> None:
    fields = {"run": "bench-12345678", "client": "site-1", "life": 2**62, "iteration": 300, "version": 300}
    data = seal("answer", fields, [b"update"])
    assert len(data) - len(b"update") <= 60
    assert unseal(data).fields == fields
