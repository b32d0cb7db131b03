"""Frames of NVFlare over a connection: the same bytes at the other end, few of them on the way."""

from __future__ import annotations

import os
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.deploy.nvflare.frames import FrameError, Packer, Unpacker

PREFIX = struct.Struct(">IHBBHHHH")


def frame(headers: bytes, payload: bytes, number: int = 1) -> bytes:
    """As nvflare.fuel.f3.sfm.sfm_conn writes it."""
    length = PREFIX.size + len(headers) + len(payload)
    return PREFIX.pack(length, len(headers), 1, 0, 0, 2, number, number) + headers + payload


@given(
    st.lists(
        st.tuples(st.binary(max_size=300), st.one_of(st.binary(max_size=300), st.just(bytes(5000)))),
        max_size=12,
    )
)
def test_every_frame_arrives_as_it_was(parts: list[tuple[bytes, bytes]]) -> None:
    packer, unpacker = Packer(), Unpacker()
    for number, (headers, payload) in enumerate(parts):
        sent = frame(headers, payload, number)
        assert unpacker.unpack(packer.pack(sent)) == sent


def test_what_is_the_same_in_every_frame_is_sent_once() -> None:
    packer, token, name = Packer(), os.urandom(400), b"site-1.0123456789abcdef"
    sizes = []
    for number in range(5):
        headers = name + token + name + struct.pack(">d", 1e9 + number) + b"route" + name
        payload = os.urandom(500)
        sizes.append(len(packer.pack(frame(headers, payload, number))) - len(payload))
    assert sizes[0] > 400
    assert max(sizes[1:]) < 50


def test_a_payload_says_nothing_about_the_token() -> None:
    """One that repeats the token is no shorter: heads and payloads have dictionaries of their own."""
    packer, token = Packer(), os.urandom(300)
    packer.pack(frame(token, b""))
    assert len(packer.pack(frame(token, token))) > len(token)


@given(st.data())
def test_a_damaged_frame_is_refused_or_another_frame(data: st.DataObject) -> None:
    packer, unpacker = Packer(), Unpacker()
    unpacker.unpack(packer.pack(frame(b"headers" * 9, b"payload")))
    packed = bytearray(packer.pack(frame(b"headers" * 9 + b"!", b"payload" * 9)))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    try:
        found = unpacker.unpack(bytes(packed))
    except FrameError:
        return
    assert PREFIX.unpack_from(found)[0] == len(found)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xf0",
        b"\xf0\xff\xff\xff\xff\xff\xff",
        frame(b"headers", b"payload"),  # of NVFlare without our driver
        b"\xf0\x05" + bytes(5),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match="frame"):
        Unpacker().unpack(data)


def test_a_part_that_unpacks_to_very_much_is_refused() -> None:
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = coder.compress(bytes(100_000_000)) + coder.flush()
    size = len(bomb)
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    with pytest.raises(FrameError, match="at most"):
        Unpacker().unpack(b"\xf0" + length + bomb)
