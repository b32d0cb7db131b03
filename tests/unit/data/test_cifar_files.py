"""CIFAR-10 as batches and as pictures; what is in them is read and never run."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from PIL import Image

from flexfl.data.cifar import BATCHES, read_batches, read_pictures
from flexfl.errors import FlexFLError
from tiny_data import CIFAR, batches, pictures, png, python_2_array, python_2_batch, python_3_batch

ROWS = CIFAR["test_x"].reshape(4, -1)


def assert_whole(found: dict[str, np.ndarray]) -> None:
    assert set(found) == set(CIFAR)
    for name, array in CIFAR.items():
        assert_array_equal(found[name], array, strict=True)


# Batches ---------------------------------------------------------------------------------------


def columns_first(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    return python_2_batch(pixels, labels, fortran=True)


@pytest.mark.parametrize("write", [python_2_batch, columns_first, python_3_batch])
def test_batches(write: Any) -> None:
    """As Python 2 wrote them (text for keys and content), and written again by Python 3 (bytes)."""
    assert_whole(read_batches(batches(write=write)))


def test_the_pickles_made_here_are_what_numpy_reads() -> None:
    found = pickle.loads(python_2_batch(CIFAR["test_x"], CIFAR["test_y"]), encoding="latin1")
    assert_array_equal(found["data"], ROWS, strict=True)
    assert found["labels"] == CIFAR["test_y"].tolist()


def refused(batch: bytes) -> str:
    with pytest.raises(FlexFLError, match="data_batch_3") as caught:
        read_batches({**batches(), "data_batch_3": batch})
    return str(caught.value)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ([], "must hold a table, got list"),
        ({}, "must hold bytes, 3072 for each image"),
        ({"data": ROWS}, "must hold a list of labels from 0 to 9"),
        ({"data": ROWS, "labels": [0, 1, 2, 10]}, "must hold a list of labels from 0 to 9"),
        ({"data": ROWS, "labels": [0, 1, 2, -1]}, "must hold a list of labels from 0 to 9"),
        ({"data": ROWS, "labels": [0, 1, 2, 1.0]}, "must hold a list of labels from 0 to 9"),
        ({"data": ROWS, "labels": [0, 1, 2, True]}, "must hold a list of labels from 0 to 9"),
        ({"data": ROWS, "labels": "0123"}, "must hold a list of labels from 0 to 9"),
        ({"data": ROWS[:, :-1], "labels": []}, "must hold bytes, 3072 for each image"),
        ({"data": ROWS.reshape(-1), "labels": []}, "must hold bytes, 3072 for each image"),
        ({"data": ROWS.tolist(), "labels": []}, "must hold bytes, 3072 for each image"),
        ({"data": ROWS.astype(np.int8), "labels": []}, "arrays of i1 are not allowed"),
        ({"data": ROWS.astype(object), "labels": []}, "arrays of O8 are not allowed"),
        ({"data": ROWS[:1, :1], "labels": []}, "must hold bytes, 3072 for each image"),
    ],
)
def test_a_batch_with_something_else_in_it(batch: Any, reason: str) -> None:
    assert reason in refused(pickle.dumps(batch, protocol=2))


def test_a_broken_batch() -> None:
    whole = batches()["data_batch_3"]
    for broken in (b"", b"\x80", whole[:-1], whole[: len(whole) // 2], b"<html>not found</html>"):
        assert "cannot be read as a batch" in refused(broken)
    refused(b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n.")
    refused(b"\x80\x02}U\x04data" + python_2_array(ROWS)[:80] + b"s.")


# Hostile batches -------------------------------------------------------------------------------


def named(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("__builtin__", "eval"),
        ("builtins", "getattr"),
        ("subprocess", "check_call"),
        ("numpy", "load"),
        ("numpy", "fromfile"),
        ("numpy", "memmap"),
        ("numpy", "ndarray.tofile"),
        ("numpy.core.multiarray", "scalar"),
        ("codecs", "encode"),
        ("flexfl.data.cifar", "_Array"),
        ("flexfl.data.cifar", "json.loads"),
    ],
)
def test_nothing_can_be_called(tmp_path: Path, protocol: int, module: str, name: str) -> None:
    """Each of these would leave a file behind, if it were called and did what it does."""
    trace = tmp_path / "trace"
    given = f"touch {trace}" if name in ("system", "check_call") else f"open({str(trace)!r}, 'w')"
    if protocol < 4:
        function = named(module, name)
    else:
        function = b"\x8c" + bytes([len(module)]) + module.encode()
        function += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93"
    message = refused(b"\x80" + bytes([protocol]) + function + text(given) + b"\x85R.")
    assert f"{module}.{name} is not allowed in a dataset" in message
    assert not trace.exists()


def test_the_traps_are_real(tmp_path: Path) -> None:
    """What the tests above rely on: an ordinary unpickler does run it."""
    trace = tmp_path / "trace"
    pickle.loads(b"\x80\x02cos\nsystem\n" + text(f"touch {trace}") + b"\x85R.")
    assert trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        named("numpy", "ndarray") + b"K\x05\x85\x85R",  # numpy.ndarray((5,)): memory as it was left
        named("numpy", "ndarray") + b")\x81",  # by __new__
        b"(" + named("numpy", "ndarray") + b"o",
        b"(inumpy\nndarray\n",
        named("numpy", "dtype") + text("O") + b"\x85R",
        named("numpy", "dtype") + text("V8") + b"K\0K\x01\x87R",
        named("numpy", "dtype") + b")\x81",
        named("_codecs", "encode") + text("ab") + text("rot13") + b"\x86R",
        named("_codecs", "encode") + text("ab") + text("utf-16") + b"\x86R",
        named("_codecs", "encode") + b"K\x05" + text("latin1") + b"\x86R",
        named("numpy.core.multiarray", "_reconstruct") + named("numpy", "dtype") + b"K\0\x85C\x01b\x87R",
        b"Pnumber\n",  # a persistent id
        b"\x82\x01",  # an extension
        # Attributes of what is shared by all batches.
        named("_codecs", "encode") + b"}X\x01\0\0\0aK\x01sb",
        named("_codecs", "encode") + b"N}X\x0c\0\0\0__defaults__NS'x'\n\x86s\x86b",
        named("numpy.core.multiarray", "_reconstruct") + b"N}X\x08\0\0\0__call__Ns\x86b",
        named("numpy", "ndarray") + b"}X\x01\0\0\0aK\x01sb",
        # An array that says other than what it holds.
        python_2_array(ROWS).replace(struct.pack("<cHcH", b"M", 4, b"M", 3072), b"M\xff\xffM\xff\xff"),
    ],
)
def test_what_may_be_named_cannot_be_used_otherwise(content: bytes) -> None:
    assert "cannot be read as a batch" in refused(b"\x80\x02" + content + b".")
    assert_whole(read_batches(batches(write=python_3_batch)))  # and nothing was changed


def test_tuples_within_tuples_do_not_overrun_the_stack() -> None:
    """As the key of a table they are hashed, all the way down."""
    assert "too deeply nested" in refused(b"\x80\x02}N" + b"\x85" * 1_000_000 + b"Ns.")


@pytest.mark.parametrize("number", [2**25, 2**32 - 1])
def test_a_memory_that_is_asked_for_by_a_number(number: int) -> None:
    error = refused(b"\x80\x02}r" + struct.pack("<I", number) + b".")
    assert f"stores a value under number {number}" in error
    assert "stores a value" in refused(b"}p33554432\n.")


def test_an_array_is_not_made_over_and_over() -> None:
    """Each BUILD of a remembered state would copy all its bytes."""
    array = python_2_array(ROWS)
    assert "more than an array" in refused(b"\x80\x02(" + array * 10 + b"l.")


WHOLE_BATCH = python_2_batch(CIFAR["test_x"][:1], CIFAR["test_y"][:1])
HEAD, TAIL = WHOLE_BATCH[:200], WHOLE_BATCH[200:]


@given(st.data())
def test_no_change_of_a_batch_brings_out_anything_but_our_error(data: st.DataObject) -> None:
    content = bytearray(HEAD)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
    try:
        found = read_batches(dict.fromkeys(BATCHES, bytes(content) + TAIL))
    except FlexFLError:
        return
    assert found["train_x"].dtype == found["train_y"].dtype == np.uint8


# Pictures --------------------------------------------------------------------------------------


def test_pictures() -> None:
    assert_whole(read_pictures(pictures()))


def test_the_rows_of_a_picture_are_images() -> None:
    """Pixel (y, x) of image n lies at row n, column 32·y + x."""
    with Image.open(io.BytesIO(pictures()["test_batch.png"])) as picture:
        assert picture.size == (1024, 4)
        assert picture.getpixel((32 * 5 + 7, 2)) == tuple(CIFAR["test_x"][2, :, 5, 7])


def picture_of(mode: str, width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height)).save(stream, "PNG")
    return stream.getvalue()


def refused_picture(content: bytes) -> str:
    with pytest.raises(FlexFLError, match=r"test_batch\.png") as caught:
        read_pictures({**pictures(), "test_batch.png": content})
    return str(caught.value)


@pytest.mark.parametrize("size", [(32, 32), (1023, 4), (1025, 4), (3072, 4), (4, 1024)])
def test_a_picture_of_another_width(size: tuple[int, int]) -> None:
    assert f"must be 1024 pixels wide, got {size[0]}" in refused_picture(picture_of("RGB", *size))


def with_size(width: int, height: int) -> bytes:
    """A small picture whose header announces another size, with a right checksum."""
    content = bytearray(picture_of("RGB", 1024, 1))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.parametrize("height", [100_000, 200_000, 2**31 - 1])
def test_a_picture_that_announces_more_than_it_holds(height: int) -> None:
    assert "cannot be read as a picture" in refused_picture(with_size(1024, height))


def test_a_broken_picture() -> None:
    whole = png(CIFAR["test_x"])
    other = io.BytesIO()
    Image.new("RGB", (1024, 4)).save(other, "JPEG")
    for broken in (b"", whole[:8], whole[:40], whole[: len(whole) // 2], b"<html>", other.getvalue()):
        assert "cannot be read as a picture" in refused_picture(broken)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[0, 1",
        b"{}",
        b"[0, 1, 2, 10]",
        b"[0, 1, 2, -1]",
        b"[0, 1, 2, 3.0]",
        b"[0, 1, 2, null]",
        b"[0, 1, 2, NaN]",
        b"[0, 1, 2, 1e999]",
        b"[0, 1, 2, " + b"9" * 5000 + b"]",
        b"[" * 100_000,
        b"\xff\xfe[",
        json.dumps("0123").encode(),
    ],
)
def test_labels_that_are_none(content: bytes) -> None:
    with pytest.raises(FlexFLError, match=r"test_lables\.json (is not a list|must hold a list) of labels"):
        read_pictures({**pictures(), "test_lables.json": content})


PICTURES = pictures()


@given(st.data())
def test_no_change_of_a_picture_brings_out_anything_but_our_error(data: st.DataObject) -> None:
    content = bytearray(PICTURES["test_batch.png"])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 60) | st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
    try:
        found = read_pictures({**PICTURES, "test_batch.png": bytes(content)})
    except FlexFLError:
        return
    assert found["test_x"].shape[1:] == (3, 32, 32)
