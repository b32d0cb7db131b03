"""Messages as bytes: nothing is lost, sizes are real, and no damage goes unnoticed."""

from __future__ import annotations

import itertools
import math
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from flexfl.errors import FlexFLError
from flexfl.wire import WireError, decode, encode, message_bytes, sendable
from flexfl.wire.subset import decode_subset, encode_subset, subset_bytes

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
    assert len(encode(message)) == message_bytes(np.array(count), len(message), str(message.dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 30, 255, 256])
def test_sizes_are_real_for_every_number_of_components(dim: int, dtype: np.dtype) -> None:
    counts = np.arange(dim + 1)
    predicted = message_bytes(counts, dim, str(dtype))
    assert predicted.shape == counts.shape
    found = [len(encode((np.arange(dim) < count).astype(dtype))) for count in counts]
    assert_array_equal(predicted, found)
    assert np.all(np.diff(predicted) >= 0)
    assert predicted[-1] == HEADER + dim * dtype.itemsize


def test_a_message_is_never_longer_than_the_dense_one() -> None:
    dense, sparse = np.ones(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    sparse[3] = 1
    assert len(encode(dense)) == HEADER + 400
    assert len(encode(sparse)) == HEADER + 2 + 4  # one of a hundred is seven bits, and a byte to end with


def test_sending_nothing_takes_no_bytes() -> None:
    assert encode(np.zeros(10)) == b""
    assert message_bytes(np.array(0), 10, "float64") == 0
    with pytest.raises(WireError, match="header"):
        decode(b"", 10)


def test_a_component_equal_to_zero_is_not_sent() -> None:
    """−0.0 adds what 0.0 adds: alone it is no message, and a sparse message leaves it out."""
    assert encode(np.full(5, -0.0)) == b""
    message = np.zeros(50)
    message[[3, 4]] = [1.5, -0.0]
    data = encode(message)
    assert len(data) == message_bytes(np.array(1), 50, "float64")
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
        decode(b"FXFL\x02\x01\x01\x00" + data, dim)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dim", [2, 100])
def test_nan_and_infinity_are_refused(value: float, dim: int) -> None:
    message = np.zeros(dim)
    message[1] = value
    with pytest.raises(WireError, match="NaN or infinity"):
        encode(message)


@pytest.mark.parametrize("dim", [1, 9, 11, 1000])
@pytest.mark.parametrize("count", [1, 10])
def test_a_message_for_another_model_is_refused(dim: int, count: int) -> None:
    message = (np.arange(10) < count).astype(np.float32)
    with pytest.raises(WireError, match=f"must be for {dim} parameters"):
        decode(encode(message), dim)


def forged(form: int, dim: int, count: int, body: bytes, *, values: int = 1, version: int = 2) -> bytes:
    """A message with a valid checksum, by a sender that does not keep to the rules."""
    start = struct.pack("<4sBBBBII", b"FXFL", version, form, values, 0, dim, count)
    return start + struct.pack("<I", zlib.crc32(start + body)) + body


ONE_OF_FOUR = encode_subset(np.array([1]), 4)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (forged(1, 4, 5, bytes(22)), "parameters"),
        (forged(1, 4, 0, b""), "parameters"),
        (forged(1, 4, 2, ONE_OF_FOUR + struct.pack("<f", 1.0)), "bytes after its header"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<ff", 1.0, 1.0)), "bytes after its header"),
        (forged(2, 4, 4, struct.pack("<3f", 1, 2, 3)), "bytes after its header"),
        (forged(2, 4, 3, struct.pack("<4f", 1, 2, 3, 4)), "must hold 3 components, got 4"),
        (forged(2, 2**32 - 1, 1, struct.pack("<f", 1)), "parameters"),
        (forged(3, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0)), "unknown header"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0), values=5), "unknown header"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0), version=1), "version 2, got 1"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", float("nan"))), "NaN"),
        (forged(1, 4, 1, ONE_OF_FOUR + b"\x80\x7f", values=3), "NaN"),
    ],
)
def test_a_forged_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(data, 4)


def test_the_layout_is_the_documented_one() -> None:
    """A message written by hand from the module's docstring is the encoder's own."""
    message = np.zeros(9, dtype=np.float32)
    message[[2, 7]] = [0.5, -3.0]
    by_hand = forged(1, 9, 2, encode_subset(np.array([2, 7]), 9) + struct.pack("<ff", 0.5, -3.0))
    assert encode(message) == by_hand
    assert_array_equal(decode(by_hand, 9), message, strict=True)


def test_wire_errors_are_ours() -> None:
    assert issubclass(WireError, FlexFLError)


# Which components ------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", range(1, 10))
def test_every_choice_has_a_code_of_its_own(dim: int) -> None:
    for count in range(dim + 1):
        codes = set()
        for chosen in itertools.combinations(range(dim), count):
            code = encode_subset(np.array(chosen, dtype=np.int64), dim)
            assert tuple(decode_subset(code, count, dim)) == chosen
            assert len(code) == subset_bytes(np.array(count), dim)
            codes.add(code)
        assert len(codes) == math.comb(dim, count)


@given(st.integers(1, 3000), st.data())
def test_choices_of_all_shapes(dim: int, data: st.DataObject) -> None:
    """Runs, gaps and single ones, at both ends: carries go through many bytes of the code."""
    edges = sorted(data.draw(st.sets(st.integers(0, dim), max_size=12)))
    chosen = np.zeros(dim, dtype=bool)
    for begin, end in itertools.pairwise([0, *edges, dim]):
        chosen[begin:end] = data.draw(st.booleans())
    indices = np.flatnonzero(chosen)
    code = encode_subset(indices, dim)
    assert_array_equal(decode_subset(code, len(indices), dim), indices)


@pytest.mark.parametrize("dim", [39_760, 551_786])
@pytest.mark.parametrize("share", [0.0005, 0.001, 0.01, 0.1, 0.3])
def test_indices_are_coded_near_their_entropy(dim: int, share: float) -> None:
    count = round(share * dim)
    chosen = np.sort(np.random.default_rng(1).choice(dim, count, replace=False))
    code = encode_subset(chosen, dim)
    assert_array_equal(decode_subset(code, count, dim), chosen)
    entropy = (math.lgamma(dim + 1) - math.lgamma(count + 1) - math.lgamma(dim - count + 1)) / math.log(2)
    assert 8 * len(code) <= 1.05 * entropy


@given(st.binary(max_size=40), st.integers(1, 300), st.data())
def test_any_bytes_give_ascending_indices_in_range(code: bytes, dim: int, data: st.DataObject) -> None:
    indices = decode_subset(code, data.draw(st.integers(0, dim)), dim)
    assert np.all(np.diff(indices) > 0)
    assert np.all((indices >= 0) & (indices < dim))


# Rounded values ----------------------------------------------------------------------------------


@given(messages(), st.sampled_from(["float16", "bfloat16"]))
def test_what_arrives_of_rounded_values_is_known_to_the_sender(message: np.ndarray, kind: str) -> None:
    arrives = sendable(message, kind)
    assert arrives.dtype == message.dtype
    data = encode(message, kind)
    if not data:
        assert not arrives.any()
        return
    assert_array_equal(decode(data, len(message)).astype(message.dtype), arrives)
    stays = message - arrives
    assert_array_equal(arrives + stays, message)  # nothing is lost


@pytest.mark.parametrize(("kind", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_rounding_is_to_the_nearest(kind: str, digits: int) -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    error = np.abs(sendable(values, kind) - values)
    assert np.all(error <= np.abs(values) * 2.0**-digits)
    assert len(encode(values, kind)) == message_bytes(np.array(1000), 1000, kind)
    tie = np.array([1 + 2.0**-digits, 1 + 3 * 2.0**-digits], dtype=np.float32)  # between two: to the even one
    assert_array_equal(sendable(tie, kind), np.array([1, 1 + 4 * 2.0**-digits], dtype=np.float32))


@pytest.mark.parametrize(("kind", "large"), [("float16", 70_000.0), ("bfloat16", 3.4e38)])
def test_a_value_too_large_takes_all_digits_along(kind: str, large: float) -> None:
    message = np.array([0.1, 0, large], dtype=np.float32)
    assert_array_equal(sendable(message, kind), message)
    assert_array_equal(decode(encode(message, kind), 3), message)


# A million damaged messages ---------------------------------------------------------------------


def test_a_million_damaged_messages_give_a_message_or_our_error() -> None:
    """Half of them with a checksum that fits, so that what lies behind it is reached, too."""
    rng = np.random.default_rng(5)
    originals = []
    for kind in ("float32", "float16", "bfloat16"):
        for count in (1, 3, 20, 30):
            message = np.zeros(30, dtype=np.float32)
            message[rng.choice(30, count, replace=False)] = rng.normal(size=count)
            originals.append(np.frombuffer(encode(message, kind), dtype=np.uint8))
    refused = 0
    for original in originals:
        number = 1_000_000 // len(originals) + 1
        places = rng.integers(0, len(original), (number, 3))
        bytes_ = rng.integers(0, 256, (number, 3), dtype=np.uint8)
        sizes = np.where(rng.random(number) < 0.2, rng.integers(0, len(original) + 8, number), len(original))
        for place, value, size, sealed in zip(places, bytes_, sizes, rng.random(number) < 0.5, strict=True):
            damaged = np.zeros(size, dtype=np.uint8)
            damaged[: len(original)] = original[:size]
            damaged[place[place < size]] = value[place < size]
            data = damaged.tobytes()
            if sealed and size >= HEADER:
                data = data[:16] + struct.pack("<I", zlib.crc32(data[:16] + data[HEADER:])) + data[HEADER:]
            try:
                assert decode(data, 30).shape == (30,)
            except WireError:
                refused += 1
    assert refused > 500_000
