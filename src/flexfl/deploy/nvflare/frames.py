"""Frames of NVFlare, each written as what differs from the frames before it on the same connection.

A frame is a prefix of 16 bytes (`nvflare.fuel.f3.sfm.prefix`), headers and a payload. Nearly all of a small
frame is headers, and nearly all of the headers (names of cells, token, signature) is the same in every frame.
So the head is deflated with the last heads as the dictionary, which both ends know: a connection keeps the
order of frames. The payload is deflated in the same way if it is small and that makes it smaller. Nothing is
left out: the receiver gets the frame that was sent, byte by byte, and NVFlare checks its token as before.

    kind u8 · length of the deflated head (LEB128) · head without its first 4 bytes, deflated · payload

Heads and payloads have dictionaries of their own, so the length on the wire of a payload says nothing about
the token in a head.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque

_PREFIX = 16
_LENGTH = struct.Struct(">I")
_HEADER_LENGTH = struct.Struct(">H")  # at 4
_PLAIN, _DEFLATED = 0xF0, 0xF1  # no frame of NVFlare begins like this: it would have 4 GB
_SMALL = 4096  # a payload above this is neither deflated nor part of the dictionary
_LARGEST_HEAD = _PREFIX + (1 << 16)
_REMEMBERED = 3  # frames; an answer, a heartbeat and whatever else takes turns on a connection


class FrameError(ValueError):
    """Bytes that are not a frame of the other end of this connection."""


class _Dictionary:
    """The last few pieces that went over a connection in one direction."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque(maxlen=_REMEMBERED)

    def deflate(self, piece: bytes) -> bytes:
        """Return a piece as what differs from those before."""
        coder = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=b"".join(self._pieces))
        return coder.compress(piece) + coder.flush()

    def inflate(self, data: bytes, most: int) -> bytes:
        """Return the piece that `deflate` has turned into `data`.

        Raises:
            FrameError: there is none, or it is longer than `most`.
        """
        coder = zlib.decompressobj(-zlib.MAX_WBITS, zdict=b"".join(self._pieces))
        try:
            piece = coder.decompress(data, most)
        except zlib.error as error:
            raise FrameError(f"frame is damaged ({error})") from error
        if not coder.eof or coder.unused_data:
            raise FrameError(f"frame must have a part of at most {most} bytes, and no more after it")
        return piece

    def remember(self, piece: bytes) -> None:
        self._pieces.append(piece)


class Packer:
    """The sending end of one direction of a connection."""

    def __init__(self) -> None:
        self._heads, self._payloads = _Dictionary(), _Dictionary()

    def pack(self, frame: bytes) -> bytes:
        """Return a frame as it goes over the wire; frames must be sent in the order of the calls."""
        end = _PREFIX + _HEADER_LENGTH.unpack_from(frame, 4)[0]
        head, payload, kind = frame[_LENGTH.size : end], frame[end:], _PLAIN
        deflated = self._heads.deflate(head)
        self._heads.remember(head)
        if 0 < len(payload) <= _SMALL:
            shorter = self._payloads.deflate(payload)
            self._payloads.remember(payload)
            if len(shorter) < len(payload):
                kind, payload = _DEFLATED, shorter
        return b"".join([bytes([kind]), _varint(len(deflated)), deflated, payload])


class Unpacker:
    """The receiving end of one direction of a connection."""

    def __init__(self) -> None:
        self._heads, self._payloads = _Dictionary(), _Dictionary()

    def unpack(self, data: bytes) -> bytes:
        """Return the frame that `Packer.pack` was given.

        Raises:
            FrameError: `data` is not the next frame of this connection.
        """
        if not data or data[0] not in (_PLAIN, _DEFLATED):
            raise FrameError(f"frame has an unknown beginning {data[:4]!r}")
        size, begin = _read_varint(data, 1)
        head = self._heads.inflate(data[begin : begin + size], _LARGEST_HEAD)
        self._heads.remember(head)
        payload = data[begin + size :]
        if data[0] == _DEFLATED:
            payload = self._payloads.inflate(payload, _SMALL)
        if 0 < len(payload) <= _SMALL:
            self._payloads.remember(payload)
        return _LENGTH.pack(_LENGTH.size + len(head) + len(payload)) + head + payload


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the low ones first (LEB128)."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise FrameError("frame ends within its first number")
