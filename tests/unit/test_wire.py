"""Messages as bytes: nothing is lost, sizes are real, and no damage goes unnoticed."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from flexfl.errors import FlexFLError
from flexfl.wire import WireError, decode, encode, message_bytes

HEADER = 20
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]


@st.composite
def messages(draw: st.DrawFn, max_dim: int = 60) -> np.ndarray:
    """Vectors (D,) of either type, from almost empty to full; at least one component."""
    dtype = draw(st.sampled_from(DTYPES))
    dim = draw(st.integers(1, max_dim))
    width = 8 * dtype.itemsize
    values = st.floats(allow_nan=False, allow_infinity=False, width=width).filter(lambda v: v != 0)
    message = np.zeros(dim, dtype=dtype)
    sent = draw(st.lists(st.integers(0, dim - 1), min_size=1, max_size=dim, unique=True))
    message[sent] = draw(hnp.arrays(dtype, len(sent), elements=values))
    return message


@given(messages())
@settings(max_examples=300)
def test_nothing_is_lost(message: np.ndarray) -> None:
    """Bit for bit, so that subnormal numbers and the last digit arrive too."""
    received = decode(encode(message), len(message))
    assert received.dtype == message.dtype
    assert received.tobytes() == message.tobytes()
    received += 1  # the receiver may go on with it


@given(messages())
@settings(max_examples=300)
def test_sizes_are_real(message: np.ndarray) -> None:
    count = np.count_nonzero(message)
    assert len(encode(message)) == message_bytes(np.array(count), len(message), message.itemsize)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 30, 255, 256])
def test_sizes_are_real_for_every_number_of_components(dim: int, dtype: np.dtype) -> None:
    counts = np.arange(dim + 1)
    predicted = message_bytes(counts, dim, dtype.itemsize)
    assert predicted.shape == counts.shape
    found = [len(encode((np.arange(dim) < count).astype(dtype))) for count in counts]
    assert_array_equal(predicted, found)
    assert np.all(np.diff(predicted) >= 0)
    assert predicted[-1] == HEADER + dim * dtype.itemsize


def test_a_message_is_never_longer_than_the_dense_one() -> None:
    dense, sparse = np.ones(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    sparse[3] = 1
    assert len(encode(dense)) == HEADER + 400
    assert len(encode(sparse)) == HEADER + 8


def test_sending_nothing_takes_no_bytes() -> None:
    assert encode(np.zeros(10)) == b""
    assert message_bytes(np.array(0), 10, 8) == 0
    with pytest.raises(WireError, match="header"):
        decode(b"", 10)


def test_a_component_equal_to_zero_is_not_sent() -> None:
    """−0.0 adds what 0.0 adds: alone it is no message, and a sparse message leaves it out."""
    assert encode(np.full(5, -0.0)) == b""
    message = np.zeros(50)
    message[[3, 4]] = [1.5, -0.0]
    data = encode(message)
    assert len(data) == message_bytes(np.array(1), 50, 8)
    received = decode(data, 50)
    assert_array_equal(received, message)
    assert not np.signbit(received[4])


def test_what_arrives_is_little_endian_whatever_was_sent_from() -> None:
    message = np.array([0, 1.5, 0, 0, -2.5e-7])
    assert encode(message.astype(">f8")) == encode(message.astype("<f8"))


@given(messages(max_dim=12), st.data())
def test_every_flipped_bit_is_noticed(message: np.ndarray, data: st.DataObject) -> None:
    sent = encode(message)
    place = data.draw(st.integers(0, 8 * len(sent) - 1))
    damaged = bytearray(sent)
    damaged[place // 8] ^= 1 << place % 8
    with pytest.raises(WireError):
        decode(bytes(damaged), len(message))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 3, 16])
def test_every_flipped_byte_truncation_and_trailing_byte_is_noticed(count: int, dtype: np.dtype) -> None:
    message = np.zeros(16, dtype=dtype)
    message[:count] = np.linspace(1, 2, count)
    sent = encode(message)
    damaged = [sent[:i] + bytes([sent[i] ^ 0xFF]) + sent[i + 1 :] for i in range(len(sent))]
    damaged += [sent[:length] for length in range(len(sent))]
    damaged += [sent + b"\0", sent + sent]
    for data in damaged:
        with pytest.raises(WireError):
            decode(data, 16)


@given(st.binary(max_size=80), st.integers(1, 10))
def test_any_other_bytes_are_refused(data: bytes, dim: int) -> None:
    with pytest.raises(WireError):
        decode(data, dim)
    with pytest.raises(WireError):
        decode(b"FXFL\x01\x01\x04\x00" + data, dim)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dim", [2, 100])
def test_nan_and_infinity_are_refused(value: float, dim: int) -> None:
    message = np.zeros(dim)
    message[1] = value
    with pytest.raises(WireError, match="NaN or infinity"):
        decode(encode(message), dim)


@pytest.mark.parametrize("dim", [1, 9, 11, 1000])
@pytest.mark.parametrize("count", [1, 10])
def test_a_message_for_another_model_is_refused(dim: int, count: int) -> None:
    message = (np.arange(10) < count).astype(np.float32)
    with pytest.raises(WireError, match=f"must be for {dim} parameters"):
        decode(encode(message), dim)


def forged(form: int, dim: int, count: int, body: bytes, *, itemsize: int = 4, version: int = 1) -> bytes:
    """A message with a valid checksum, by a sender that does not keep to the rules."""
    start = struct.pack("<4sBBBBII", b"FXFL", version, form, itemsize, 0, dim, count)
    return start + struct.pack("<I", zlib.crc32(start + body)) + body


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (forged(1, 4, 2, struct.pack("<IIff", 1, 1, 1.0, 2.0)), "indices"),
        (forged(1, 4, 2, struct.pack("<IIff", 2, 1, 1.0, 2.0)), "indices"),
        (forged(1, 4, 1, struct.pack("<If", 4, 1.0)), "indices"),
        (forged(1, 4, 1, struct.pack("<If", 2**32 - 1, 1.0)), "indices"),
        (forged(1, 4, 5, struct.pack("<5I5f", *range(5), *range(5))), "parameters"),
        (forged(1, 4, 2, struct.pack("<If", 1, 1.0)), "bytes after its header"),
        (forged(2, 4, 4, struct.pack("<3f", 1, 2, 3)), "bytes after its header"),
        (forged(2, 2**32 - 1, 1, struct.pack("<f", 1)), "parameters"),
        (forged(3, 4, 1, struct.pack("<If", 1, 1.0)), "unknown header"),
        (forged(1, 4, 1, struct.pack("<If", 1, 1.0), itemsize=2), "unknown header"),
        (forged(1, 4, 1, struct.pack("<If", 1, 1.0), version=2), "unknown header"),
        (forged(1, 4, 1, struct.pack("<If", 1, float("nan"))), "NaN"),
    ],
)
def test_a_forged_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(data, 4)


def test_the_layout_is_the_documented_one() -> None:
    """A message written by hand from the module's docstring is the encoder's own."""
    message = np.zeros(9, dtype=np.float32)
    message[[2, 7]] = [0.5, -3.0]
    by_hand = forged(1, 9, 2, struct.pack("<IIff", 2, 7, 0.5, -3.0))
    assert encode(message) == by_hand
    assert_array_equal(decode(by_hand, 9), message, strict=True)


def test_wire_errors_are_ours() -> None:
    assert issubclass(WireError, FlexFLError)
