"""Bytes on the wire of all connections of a port, including TLS, as counted by the kernel.

Linux reports them without privileges (netlink, sock_diag(7)): for each TCP connection the bytes that
the other side has acknowledged and the bytes received from it. TCP and IP headers are not counted.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

_SAMPLE_SECONDS = 1.0
_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _DUMP = 0x1, 0x300
_DONE, _ERROR = 3, 2
_INFO = 2  # INET_DIAG_INFO: the attribute with tcp_info
_STATES = 0xFFF & ~(1 << 10)  # all but LISTEN
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ANSWER = 72  # inet_diag_msg, its cookie at 44
_COUNTERS = 120  # offset of tcpi_bytes_acked and tcpi_bytes_received in tcp_info


class Traffic:
    """The bytes that the server on `port` has received and sent since this object was created.

    Connections are identified by the kernel's cookie. One that has ended keeps the count of the last
    sample, so a thread samples every second; a sample takes some milliseconds.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._before = _connections(port)
        self._now = dict(self._before or {})
        if self._before is not None:
            threading.Thread(target=self._watch, daemon=True, name="traffic").start()

    def sample(self) -> tuple[int, int] | None:
        """Return the bytes up (from the clients) and down (to them); None if the kernel does not count."""
        if self._before is None:
            return None
        with self._lock:
            self._now |= _connections(self._port) or {}
            up = sum(received for received, _ in self._now.values())
            down = sum(sent for _, sent in self._now.values())
        for received, sent in self._before.values():
            up, down = up - received, down - sent
        return up, down

    def _watch(self) -> None:
        while True:
            time.sleep(_SAMPLE_SECONDS)
            self.sample()


def _connections(port: int) -> dict[bytes, tuple[int, int]] | None:
    """Return {cookie: (received, acknowledged)} of all connections accepted on this port."""
    if not sys.platform.startswith("linux"):
        return None
    found: dict[bytes, tuple[int, int]] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as link:
            link.settimeout(1.0)
            for family in (socket.AF_INET, socket.AF_INET6):
                request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES)
                request += struct.pack("!H", port) + bytes(46)
                size = _HEADER.size + len(request)
                link.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST | _DUMP, 0, 0) + request)
                found |= dict(_parse_replies(link))
    except OSError:  # not in every container
        return None
    return found


def _parse_replies(link: socket.socket) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yield (cookie, (received, acknowledged)) of each connection in the kernel's replies."""
    while True:
        data = link.recv(1 << 20)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind in (_DONE, _ERROR):
                return
            message, data = data[_HEADER.size : length], data[(length + 3) & ~3 :]
            at = _ANSWER
            while at < len(message):
                size, attribute = struct.unpack_from("=HH", message, at)
                if attribute == _INFO and size >= 4 + _COUNTERS + 16:
                    acknowledged, received = struct.unpack_from("=QQ", message, at + 4 + _COUNTERS)
                    yield message[44:52], (received, acknowledged)
                at += (size + 3) & ~3
