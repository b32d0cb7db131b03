"""Messages as bytes: nothing is lost, sizes are real, and no damage goes unnoticed."""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from flexfl.compress import RoundedTopK, TopK
from flexfl.compress.message import (
    Message,
    even_levels,
    message_bytes,
    order_bytes,
    shortened,
    subset_bytes,
    table_bytes,
)
from flexfl.compress.rounded import rounded
from flexfl.errors import FlexFLError
from flexfl.wire import WireError, decode, encode
from flexfl.wire.order import decode_order, encode_order
from flexfl.wire.subset import decode_subset, encode_subset

HEADER = 20
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]


def message_of(vector: np.ndarray) -> Message:
    """All of a vector, as it is."""
    return TopK().compress(vector, int(np.count_nonzero(vector)), np.random.default_rng)


def rounded_message(vector: np.ndarray, form: str) -> Message:
    """All of a vector, rounded."""
    return RoundedTopK(form).compress(vector, len(vector), np.random.default_rng)  # type: ignore[arg-type]


def sent(vector: np.ndarray) -> bytes:
    return encode(message_of(vector))


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
def test_nothing_is_lost(vector: np.ndarray) -> None:
    """Bit for bit, so that subnormal numbers and the last digit arrive too."""
    message = message_of(vector)
    received = decode(encode(message), len(vector))
    assert (received.dim, received.form, received.levels) == (message.dim, message.form, None)
    assert_array_equal(received.indices, message.indices)
    assert received.values.dtype == vector.dtype
    assert received.dense().tobytes() == vector.tobytes()
    received.values[:] += 1  # the receiver may go on with it


@given(messages())
@settings(max_examples=300)
def test_sizes_are_real(vector: np.ndarray) -> None:
    message = message_of(vector)
    assert len(encode(message)) == message.nbytes
    assert message.nbytes == message_bytes(np.count_nonzero(vector), len(vector), str(vector.dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 30, 255, 256])
def test_sizes_are_real_for_every_number_of_components(dim: int, dtype: np.dtype) -> None:
    counts = np.arange(dim + 1)
    predicted = message_bytes(counts, dim, str(dtype))
    assert predicted.shape == counts.shape
    found = [len(sent((np.arange(dim) < count).astype(dtype))) for count in counts]
    assert_array_equal(predicted, found)
    assert np.all(np.diff(predicted) >= 0)
    assert predicted[-1] == HEADER + dim * dtype.itemsize


def test_a_message_is_never_longer_than_the_dense_one() -> None:
    dense, sparse = np.ones(100, dtype=np.float32), np.zeros(100, dtype=np.float32)
    sparse[3] = 1
    assert len(sent(dense)) == HEADER + 400
    assert len(sent(sparse)) == HEADER + 2 + 4  # one of a hundred is seven bits, and a byte to end with


def test_sending_nothing_takes_no_bytes() -> None:
    assert sent(np.zeros(10)) == b""
    assert message_of(np.zeros(10)).nbytes == message_bytes(np.array(0), 10, "float64") == 0
    with pytest.raises(WireError, match="header"):
        decode(b"", 10)


def test_a_component_equal_to_zero_is_not_sent() -> None:
    """−0.0 adds what 0.0 adds: alone it is no message, and a sparse message leaves it out."""
    assert sent(np.full(5, -0.0)) == b""
    vector = np.zeros(50)
    vector[[3, 4]] = [1.5, -0.0]
    data = sent(vector)
    assert len(data) == message_bytes(np.array(1), 50, "float64")
    received = decode(data, 50).dense()
    assert_array_equal(received, vector)
    assert not np.signbit(received[4])


def test_what_arrives_is_little_endian_whatever_was_sent_from() -> None:
    message = message_of(np.array([0, 1.5, 0, 0, -2.5e-7]))
    assert encode(replace(message, values=message.values.astype(">f8"))) == encode(message)


@given(messages(max_dim=12), st.data())
def test_every_flipped_bit_is_noticed(vector: np.ndarray, data: st.DataObject) -> None:
    damaged = bytearray(sent(vector))
    place = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[place // 8] ^= 1 << place % 8
    with pytest.raises(WireError):
        decode(bytes(damaged), len(vector))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("levels", [False, True], ids=["values", "levels"])
def test_every_flipped_byte_truncation_and_trailing_byte_is_noticed(
    count: int, dtype: np.dtype, levels: bool
) -> None:
    vector = np.zeros(16, dtype=dtype)
    vector[:count] = np.linspace(1, 2, count)
    message = message_of(vector)
    if levels:
        kinds = np.linspace(1, 2, count).astype(dtype)
        message = Message.of_levels(16, message.indices, np.arange(count) % 2 == 1, np.arange(count), kinds)
    original = encode(message)
    damaged = [original[:i] + bytes([original[i] ^ 0xFF]) + original[i + 1 :] for i in range(len(original))]
    damaged += [original[:length] for length in range(len(original))]
    damaged += [original + b"\0", original + original]
    for data in damaged:
        with pytest.raises(WireError):
            decode(data, 16)


@given(st.binary(max_size=80), st.integers(1, 10))
def test_any_other_bytes_are_refused(data: bytes, dim: int) -> None:
    with pytest.raises(WireError):
        decode(data, dim)
    with pytest.raises(WireError):
        decode(b"FXFL\x04\x01\x01\x00" + data, dim)
    with pytest.raises(WireError):
        decode(b"FXFL\x04\x03\x01\x00" + data, dim)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dim", [2, 100])
def test_nan_and_infinity_are_refused(value: float, dim: int) -> None:
    message = Message(dim, np.array([1]), np.array([value]), "float64")
    with pytest.raises(WireError, match="NaN or infinity"):
        encode(message)


@pytest.mark.parametrize("dim", [1, 9, 11, 1000])
@pytest.mark.parametrize("count", [1, 10])
def test_a_message_for_another_model_is_refused(dim: int, count: int) -> None:
    vector = (np.arange(10) < count).astype(np.float32)
    with pytest.raises(WireError, match=f"must be for {dim} parameters"):
        decode(sent(vector), dim)


def forged(
    form: int, dim: int, count: int, body: bytes, *, values: int = 1, version: int = 4, table: int = 0
) -> bytes:
    """A message with a valid checksum, by a sender that does not keep to the rules."""
    start = struct.pack("<4sBBBBII", b"FXFL", version, form, values, table, dim, count)
    return start + struct.pack("<I", zlib.crc32(start + body)) + body


ONE_OF_FOUR = encode_subset(np.array([1]), 4)
ONE = struct.pack("<Hf", 1, 2.0)  # one level
TWO = struct.pack("<Hff", 2, 1.0, 2.0)
SHORT = struct.pack("<HhHH", 2, 128, 0, 1)
LEVELS = ONE_OF_FOUR + b"\x01" + encode_order(np.array([1]), 2)
"""One value of four that is negative and has the second of two levels."""


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
        (forged(4, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0)), "unknown header"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0), values=5), "unknown header"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0), version=1), "version 4, got 1"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", float("nan"))), "NaN"),
        (forged(1, 4, 1, ONE_OF_FOUR + b"\x80\x7f", values=3), "NaN"),
        (forged(1, 4, 1, ONE_OF_FOUR + struct.pack("<f", 1.0), table=1), "unknown header"),
        (forged(3, 4, 1, TWO + LEVELS, table=3), "unknown header"),
        (forged(3, 4, 1, b"\x01"), "how many there are"),
        (forged(3, 4, 1, TWO + LEVELS, values=2), "as float32 or float64"),
        (forged(3, 4, 1, struct.pack("<H", 0) + LEVELS), "at least one level"),
        (forged(3, 4, 1, struct.pack("<H", 65535) + LEVELS), "at least 262145 bytes after its header"),
        (forged(3, 4, 4, TWO + LEVELS), "must have 13 bytes after its header, got 15"),
        (forged(3, 4, 1, TWO + LEVELS + b"\x00"), "bytes after its header"),
        (forged(3, 4, 1, TWO + LEVELS[:-1]), "bytes after its header"),
        (forged(3, 4, 1, TWO + LEVELS[:-4]), "at least 13 bytes after its header"),
        (forged(3, 4, 1, ONE + LEVELS), "bytes after its header"),
        *(
            (forged(3, 4, 1, struct.pack("<Hff", 2, 1.0, wrong) + LEVELS), "finite and > 0")
            for wrong in (0.0, -0.0, -1.0, math.inf, math.nan)
        ),
        (forged(3, 4, 1, struct.pack("<Hf", 2, 3e38) + LEVELS, table=2), "finite and > 0"),
        (forged(3, 4, 1, struct.pack("<HhHH", 2, 129, 0, 0) + LEVELS, table=1), "finite and > 0"),
        (forged(3, 4, 1, struct.pack("<HhHH", 2, 0, 511 << 7, 0) + LEVELS, table=1), "finite and > 0"),
        (forged(3, 4, 1, struct.pack("<HhHH", 2, -32768, 0, 0) + LEVELS, values=4, table=1), "finite and"),
        (forged(3, 4, 1, struct.pack("<HhHH", 2, 32767, 0, 0) + LEVELS, values=4, table=1), "finite and"),
    ],
)
def test_a_forged_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(data, 4)


def test_the_layout_is_the_documented_one() -> None:
    """A message written by hand from the module's docstring is the encoder's own."""
    vector = np.zeros(9, dtype=np.float32)
    vector[[2, 7]] = [0.5, -3.0]
    places = encode_subset(np.array([2, 7]), 9)
    by_hand = forged(1, 9, 2, places + struct.pack("<ff", 0.5, -3.0))
    assert sent(vector) == by_hand
    assert_array_equal(decode(by_hand, 9).dense(), vector, strict=True)
    negative, codes = np.array([False, True]), np.array([0, 1])
    end = places + bytes([0b10]) + encode_order(codes, 2)
    for number, (name, table) in enumerate(
        {
            "exact": struct.pack("<Hff", 2, 0.5, 1.0),
            "short": struct.pack("<HhHH", 2, 1, 1 << 7, 0),
            "even": struct.pack("<Hf", 2, 0.5),
        }.items()
    ):
        message = Message.of_levels(
            9, np.array([2, 7]), negative, codes, np.array([0.5, 1], np.float32), name
        )
        by_hand = forged(3, 9, 2, table + end, table=number)
        assert encode(message) == by_hand
        assert_array_equal(decode(by_hand, 9).values, message.values, strict=True)


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
def test_what_arrives_of_rounded_values_is_known_to_the_sender(vector: np.ndarray, form: str) -> None:
    message = rounded_message(vector, form)
    assert message.values.dtype == vector.dtype
    data = encode(message)
    assert len(data) == message.nbytes
    if not data:
        assert not rounded(vector, form).any()
        return
    arrives = decode(data, len(vector))
    assert arrives.form == form
    assert_array_equal(arrives.indices, message.indices)
    assert_array_equal(arrives.values.astype(vector.dtype), message.values)
    stays = vector - message.dense()
    if np.abs(vector).max() < 6e4:  # else what is cut off is as large as what arrives
        assert_array_equal(message.dense() + stays, vector)  # nothing is lost


@pytest.mark.parametrize(("form", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_rounding_is_to_the_nearest(form: str, digits: int) -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    message = rounded_message(values, form)
    assert np.all(np.abs(message.dense() - values) <= np.abs(values) * 2.0**-digits)
    assert len(encode(message)) == message_bytes(np.array(1000), 1000, form)
    tie = np.array([1 + 2.0**-digits, 1 + 3 * 2.0**-digits], dtype=np.float32)  # between two: to the even one
    assert_array_equal(rounded(tie, form), np.array([1, 1 + 4 * 2.0**-digits], dtype=np.float32))


@pytest.mark.parametrize(("form", "large"), [("float16", 70_000.0), ("bfloat16", 3.4e38)])
def test_of_a_value_too_large_the_largest_number_is_sent_and_the_rest_stays(form: str, large: float) -> None:
    vector = np.array([0.125, 0, large], dtype=np.float32)
    arrives = decode(encode(rounded_message(vector, form)), 3).dense()
    assert arrives[0] == 0.125
    assert 0.9 * large < arrives[2] < vector[2]
    assert vector[2] - arrives[2] + arrives[2] == vector[2]


# Values among a few levels ------------------------------------------------------------------------


@st.composite
def level_messages(draw: st.DrawFn) -> Message:
    dtype, table = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(["exact", "short", "even"]))
    dim, number = draw(st.integers(1, 60)), draw(st.integers(1, 40))
    least, most = float(np.finfo(dtype).smallest_subnormal), 2.0**100
    if table == "short":
        least = max(least, 2.0**-400)  # all within 2^511
    elif table == "exact":
        most = float(np.finfo(dtype).max)
    levels = draw(hnp.arrays(dtype, number, elements=st.floats(least, most, width=8 * dtype.itemsize)))
    if table == "short":
        levels = shortened(levels, dtype)
    elif table == "even":
        levels = even_levels(levels[0], number)
    indices = sorted(draw(st.lists(st.integers(0, dim - 1), min_size=1, max_size=dim, unique=True)))
    codes = draw(hnp.arrays(np.int64, len(indices), elements=st.integers(0, number - 1)))
    negative = draw(hnp.arrays(np.bool_, len(indices)))
    return Message.of_levels(dim, np.array(indices), negative, codes, levels, table)


@given(level_messages())
@settings(max_examples=300)
def test_levels_arrive_and_their_sizes_are_real(message: Message) -> None:
    """In any order, and also where some are equal."""
    data = encode(message)
    assert len(data) == message.nbytes
    received = decode(data, message.dim)
    assert (received.form, received.table) == ("levels", message.table)
    for found, sent in (
        (received.levels, message.levels),
        (received.codes, message.codes),
        (received.indices, message.indices),
        (received.values, message.values),
    ):
        assert_array_equal(found, sent, strict=True)
    assert received.nbytes == message.nbytes


@pytest.mark.parametrize("number", [1, 2, 3, 8, 17, 64])
def test_sizes_of_levels_are_real_for_every_number_of_components(number: int) -> None:
    """Whether all levels are as frequent, most values have one of them, or only the last ones occur."""
    rng, dim = np.random.default_rng(number), 70
    levels = even_levels(np.float32(0.1), number)
    shares = [np.ones(number), 0.3 ** np.arange(number), 0.3 ** np.arange(number)[::-1]]
    for k, share in itertools.product(range(1, dim + 1), shares):
        codes = rng.choice(number, k, p=share / share.sum())
        places = np.sort(rng.choice(dim, k, replace=False))
        message = Message.of_levels(dim, places, rng.random(k) < 0.5, codes, levels, "even")
        data = encode(message)
        order = int(order_bytes(np.bincount(codes, minlength=number)))
        assert len(data) == HEADER + 2 + 4 + int(subset_bytes(k, dim)) + -(-k // 8) + order
        assert len(data) == message.nbytes
        assert_array_equal(decode(data, dim).dense(), message.dense())


@pytest.mark.parametrize(
    ("dim", "k", "number"),
    [(39_760, 500, 8), (39_760, 1000, 16), (39_760, 39_760, 16), (551_786, 600, 16), (551_786, 100_000, 64)],
)
@pytest.mark.parametrize("skew", [1.0, 0.7])
def test_messages_of_levels_are_near_their_entropy(dim: int, k: int, number: int, skew: float) -> None:
    rng = np.random.default_rng(1)
    share = skew ** np.arange(number)
    codes = rng.choice(number, k, p=share / share.sum())
    places = np.sort(rng.choice(dim, k, replace=False))
    levels = shortened(0.7 ** np.arange(number), np.float32)
    message = Message.of_levels(dim, places, rng.random(k) < 0.5, codes, levels, "short")
    data = encode(message)
    assert_array_equal(decode(data, dim).dense(), message.dense())
    n = np.bincount(codes, minlength=number)
    n = n[n > 0]
    choices = (math.lgamma(dim + 1) - math.lgamma(k + 1) - math.lgamma(dim - k + 1)) / math.log(2)
    entropy = choices + k + float(-(n * np.log2(n / k)).sum())
    assert 8 * (len(data) - HEADER - table_bytes(number, "short", "float32")) <= 1.01 * entropy


GOOD = Message.of_levels(4, np.array([1]), np.array([True]), np.array([1]), np.array([0.25, 1.0]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"values": np.array([0.5])}, "not the level of its code"),
        ({"codes": np.array([2])}, "a code below that"),
        ({"codes": np.array([-1])}, "a code below that"),
        ({"codes": np.array([1, 1])}, "a code below that"),
        ({"codes": None}, "must have levels, codes"),
        ({"table": "odd"}, "a table among exact, short, even"),
        ({"table": "even"}, "that its table, even, cannot hold"),
        ({"table": "short", "levels": np.array([0.3, 1.0])}, "that its table, short, cannot hold"),
        ({"table": "short", "levels": np.array([2.0**-512, 1.0])}, "that its table, short, cannot hold"),
        ({"levels": np.array([0.0, 1.0])}, "finite and > 0"),
        ({"levels": np.array([-0.25, 1.0])}, "finite and > 0"),
        ({"levels": np.array([np.inf, 1.0])}, "finite and > 0"),
        ({"levels": np.ones(65536)}, "from 1 to 65535 levels"),
        ({"levels": np.ones(2, np.float16)}, "float32 or float64"),
    ],
)
def test_a_message_of_levels_that_is_none_is_refused(changes: dict, reason: str) -> None:
    assert len(encode(GOOD)) == GOOD.nbytes
    with pytest.raises(WireError, match=reason):
        encode(replace(GOOD, **changes))


# Which value has which level ----------------------------------------------------------------------


@pytest.mark.parametrize(("number", "most"), [(2, 9), (3, 6), (5, 4)])
def test_every_order_has_a_code_of_its_own(number: int, most: int) -> None:
    for count in range(1, most + 1):
        found: dict[tuple[int, ...], set[bytes]] = {}
        for chosen in itertools.product(range(number), repeat=count):
            codes = np.array(chosen)
            cells = np.bincount(codes, minlength=number)
            code = encode_order(codes, number)
            assert tuple(decode_order(code, count, number)) == chosen
            assert len(code) == order_bytes(cells)
            found.setdefault(tuple(cells), set()).add(code)
        assert sum(map(len, found.values())) == number**count


@given(st.integers(1, 70), st.lists(st.tuples(st.integers(0, 69), st.integers(1, 500)), max_size=12))
def test_orders_of_all_shapes(number: int, runs: list[tuple[int, int]]) -> None:
    """Runs of the last level make the longest carries, runs of the first many zeros."""
    runs = [*runs, (number - 1, 300), (0, 40), (number - 1, 300)]
    codes = np.concatenate([np.full(length, level % number) for level, length in runs])
    code = encode_order(codes, number)
    assert_array_equal(decode_order(code, len(codes), number), codes)


def test_as_many_levels_as_there_may_be() -> None:
    codes = np.random.default_rng(0).permutation(np.append(np.arange(65_535), np.full(30_000, 65_534)))
    assert_array_equal(decode_order(encode_order(codes, 65_535), len(codes), 65_535), codes)


@given(st.binary(max_size=40), st.integers(1, 300), st.integers(1, 65_535))
def test_any_bytes_give_levels_in_range(code: bytes, count: int, number: int) -> None:
    codes = decode_order(code, count, number)
    assert codes.shape == (count,)
    assert np.all((codes >= 0) & (codes < number))


# A million damaged messages ---------------------------------------------------------------------


def test_a_million_damaged_messages_give_a_message_or_our_error() -> None:
    """Half of them with a checksum that fits, so that what lies behind it is reached, too."""
    rng = np.random.default_rng(5)
    originals = []
    for form in ("float32", "float16", "bfloat16", "exact", "short", "even"):
        for count in (1, 3, 20, 30):
            vector = np.zeros(30, dtype=np.float32)
            vector[rng.choice(30, count, replace=False)] = rng.normal(size=count)
            if form in ("exact", "short", "even"):
                levels, codes = np.array([0.5, 1.0, 1.5], dtype=np.float32), rng.integers(0, 3, count)
                places = np.flatnonzero(vector)
                message = Message.of_levels(30, places, vector[places] < 0, codes, levels, form)
            else:
                message = message_of(vector) if form == "float32" else rounded_message(vector, form)
            originals.append(np.frombuffer(encode(message), dtype=np.uint8))
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
                assert decode(data, 30).dense().shape == (30,)
            except WireError:
                refused += 1
    assert refused > 500_000
