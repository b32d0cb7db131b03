"""Bytes that have really crossed the connections of a port, TLS and all: what the kernel has counted.

Linux tells it to anyone (netlink, sock_diag(7)): for each TCP connection how many bytes the other
side has acknowledged and how many came from it. Headers of TCP and IP are not in it.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

_LOOK_SECONDS = 1.0
_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _DUMP = 0x1, 0x300
_DONE, _ERROR = 3, 2
_INFO = 2  # INET_DIAG_INFO: the attribute with tcp_info
_STATES = 0xFFF & ~(1 << 10)  # but LISTEN
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ANSWER = 72  # inet_diag_msg, its cookie at 44
_COUNTED = 120  # tcpi_bytes_acked and tcpi_bytes_received in tcp_info


class Traffic:
    """What the server on `port` has received and sent since this was made.

    Connections are told apart by the kernel's cookie. One that has ended stays counted with what it
    had at the last look, so a thread looks every second; a look takes some milliseconds.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._before = _connections(port)
        self._now = dict(self._before or {})
        if self._before is not None:
            threading.Thread(target=self._watch, daemon=True, name="traffic").start()

    def sample(self) -> tuple[int, int] | None:
        """(up, down): from the clients and to them; None where the kernel does not tell."""
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
            time.sleep(_LOOK_SECONDS)
            self.sample()


def _connections(port: int) -> dict[bytes, tuple[int, int]] | None:
    """Of each connection accepted on this port: cookie → (received, acknowledged)."""
    if not sys.platform.startswith("linux"):
        return None
    found: dict[bytes, tuple[int, int]] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as link:
            link.settimeout(1.0)
            for family in (socket.AF_INET, socket.AF_INET6):
                ask = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES)
                ask += struct.pack("!H", port) + bytes(46)
                link.send(_HEADER.pack(_HEADER.size + len(ask), _BY_FAMILY, _REQUEST | _DUMP, 0, 0) + ask)
                found |= dict(_parsed(link))
    except OSError:  # not in every container
        return None
    return found


def _parsed(link: socket.socket) -> Iterator[tuple[bytes, tuple[int, int]]]:
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
                if attribute == _INFO and size >= 4 + _COUNTED + 16:
                    acknowledged, received = struct.unpack_from("=QQ", message, at + 4 + _COUNTED)
                    yield message[44:52], (received, acknowledged)
                at += (size + 3) & ~3
