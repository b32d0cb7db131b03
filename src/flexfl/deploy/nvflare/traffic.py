"""Bytes on the link of all connections to or from a port, counted by the kernel.

Linux reports for each TCP connection, without privileges (netlink, sock_diag(7)), the bytes and segments that
it has sent and received, retransmissions and acknowledgements included. What was on the link is

    bytes + segments · (Ethernet 14 + IP 20 or 40 + TCP 20 + 12 with time stamps)

That leaves out 8 bytes of options of each SYN, SACK blocks where segments get lost, a connection's FIN and
what follows it, ARP and DNS. Checked against the counters of an interface in
tests/network/test_link_bytes.py.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flexfl.deploy.link import Meter

_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _DUMP = 0x1, 0x300
_DONE, _ERROR = 3, 2
_INFO = 2  # INET_DIAG_INFO: the attribute with tcp_info
_STATES = 0xFFF & ~(1 << 10)  # all but LISTEN
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ANSWER = 72  # inet_diag_msg: family at 0, peer's address at 24, cookie at 44, inode at 68
_ETHERNET, _TCP, _TIMESTAMPS = 14, 20, 12
_IP = {int(socket.AF_INET): 20, int(socket.AF_INET6): 40}
# Offsets in tcp_info (linux/tcp.h)
_OPTIONS, _ACKED_RECEIVED, _SEGMENTS, _SENT = 5, 120, 136, 200
_HAS_TIMESTAMPS = 1
_SECONDS = 5.0  # between samples: that much is missed of a connection that ends


@dataclass(frozen=True)
class Connection:
    """What the kernel has counted of one connection.

    Attributes:
        cookie: names it; no other has had it since the machine was started.
        inode: of its socket, as in /proc/PID/fd.
        peer: address of the other side.
        sent: bytes on the link that this side has sent.
        received: bytes on the link that it has received.
    """

    cookie: bytes
    inode: int
    peer: str
    sent: int
    received: int


class Traffic:
    """The bytes that the server on `port` has received and sent since this object was created."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._meter = Meter(self._counters)
        if self._meter.available:
            self._meter.watch(_SECONDS)

    def sample(self) -> tuple[int, int] | None:
        """Return the bytes up (from the clients) and down (to them); None if the kernel does not count."""
        return self._meter.sample() if self._meter.available else None

    def by_peer(self) -> dict[str, tuple[int, int]]:
        """Return the bytes up and down of the connections that are open, by the address of the client."""
        found: dict[str, tuple[int, int]] = {}
        for one in connections(local_port=self._port) or []:
            up, down = found.get(one.peer, (0, 0))
            found[one.peer] = up + one.received, down + one.sent
        return found

    def _counters(self) -> Mapping[Hashable, tuple[int, int]] | None:
        found = connections(local_port=self._port)
        return None if found is None else {one.cookie: (one.received, one.sent) for one in found}


def client_meter(port: int) -> Meter | None:
    """Return a meter of what this client's processes carry to and from the server's port; None without one.

    A client has two connections: its own, which counts from now on, and that of the job's process, this one,
    which counts from its beginning. Connections of other processes on the machine do not count.
    """
    inodes: dict[int, bool] = {}

    def counters() -> Mapping[Hashable, tuple[int, int]] | None:
        found = connections(remote_port=port)
        if found is None:
            return None
        if any(one.inode not in inodes for one in found):
            inodes.update({one.inode: False for one in found})
            inodes.update(dict.fromkeys(_sockets(os.getpid()) | _sockets(os.getppid()), True))
        return {one.cookie: (one.sent, one.received) for one in found if inodes[one.inode]}

    own = _sockets(os.getpid())
    cookies = {one.cookie for one in connections(remote_port=port) or [] if one.inode in own}
    meter = Meter(counters, mine=lambda name: name in cookies)
    if not meter.available:
        return None
    meter.watch(_SECONDS)
    return meter


def _sockets(pid: int) -> set[int]:
    """Return the inodes of the sockets that a process has open; none of one that may not be looked at."""
    found: set[int] = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def connections(*, local_port: int = 0, remote_port: int = 0) -> list[Connection] | None:
    """Return all TCP connections with that port on this side, or on the other; None if unknown."""
    if not sys.platform.startswith("linux"):
        return None
    found: list[Connection] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as link:
            link.settimeout(1.0)
            for family in _IP:
                request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES)
                request += struct.pack("!HH", local_port, remote_port) + bytes(44)
                size = _HEADER.size + len(request)
                link.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST | _DUMP, 0, 0) + request)
                found += _parse_replies(link)
    except OSError:  # not in every container
        return None
    return found


def _parse_replies(link: socket.socket) -> Iterator[Connection]:
    """Yield the connections in the kernel's replies."""
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
                info = message[at + 4 : at + size]
                if attribute == _INFO:
                    if len(info) < _SENT + 8:
                        raise OSError("the kernel does not count sent bytes: it is older than 4.19")
                    yield _connection(message, info)
                at += (size + 3) & ~3


def _connection(message: bytes, info: bytes) -> Connection:
    """Return a connection from its inet_diag_msg and tcp_info."""
    family = message[0]
    _, received = struct.unpack_from("=QQ", info, _ACKED_RECEIVED)
    segments_out, segments_in = struct.unpack_from("=II", info, _SEGMENTS)
    (sent,) = struct.unpack_from("=Q", info, _SENT)  # with retransmissions
    headers = _ETHERNET + _IP[family] + _TCP + (_TIMESTAMPS if info[_OPTIONS] & _HAS_TIMESTAMPS else 0)
    size = 4 if family == socket.AF_INET else 16
    return Connection(
        cookie=message[44:52],
        inode=struct.unpack_from("=I", message, 68)[0],
        peer=socket.inet_ntop(family, message[24 : 24 + size]),
        sent=sent + segments_out * headers,
        received=received + segments_in * headers,
    )
