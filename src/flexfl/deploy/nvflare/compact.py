"""A transport driver for NVFlare: gRPC over mutual TLS, with frames that carry only what is new in them.

Server, clients and admin use it in place of NVFlare's own driver of gRPC: its clients know no other schemes
than its own. NVFlare's processes find it through `DRIVERS`, a folder of modules that they import; the admin's
session calls `register`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.communicator import driver_mgr, load_comm_drivers
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver

from flexfl.deploy.nvflare.frames import FrameError, Packer, Unpacker

log = logging.getLogger("flexfl.deploy")

DRIVERS = Path(__file__).parent / "drivers"
"""For NVFlare's setting comm_driver_path."""
_LONGEST_PAUSE = 60.0
"""Seconds between two attempts to connect, at most: a SYN to a server that is away costs 74 bytes."""
_SHORT = 10.0


class CompactDriver(GrpcDriver):  # type: ignore[misc]  # NVFlare has no types
    """NVFlare's gRPC driver with compact frames; never without TLS."""

    def __init__(self) -> None:
        super().__init__()
        self._pause = 0.0

    @staticmethod
    def supported_transports() -> list[str]:
        return []  # those of gRPC are taken: see `take_over`

    def listen(self, connector: Any) -> None:
        connector.params[DriverParams.SECURE.value] = True
        super().listen(connector)

    def connect(self, connector: Any) -> None:
        """Connect and stay until the connection ends; after one that was short, wait before returning.

        NVFlare then waits for 1 to 10 seconds and calls again.
        """
        connector.params[DriverParams.SECURE.value] = True
        start = time.monotonic()
        super().connect(connector)
        if time.monotonic() - start > _SHORT:
            self._pause = 0.0
        elif not connector.stopped.wait(max(0.0, self._pause - _SHORT)):
            self._pause = min(_LONGEST_PAUSE, 1.5 * self._pause + 1.0)

    def add_connection(self, conn: Any) -> None:
        """Take over a new connection, before its first frame."""
        send, read, packer = conn.send_frame, conn.read_loop, Packer()
        conn.send_frame = lambda frame: send(packer.pack(bytes(frame)))
        conn.read_loop = lambda frames: read(unpacked(frames))
        super().add_connection(conn)


def unpacked(frames: Iterable[Any]) -> Iterator[Any]:
    """Yield frames as NVFlare knows them; end at one that is damaged, which ends the connection."""
    unpacker = Unpacker()
    for frame in frames:
        try:
            data = unpacker.unpack(frame.data)
        except FrameError as error:
            log.error("closing a connection: %s; do all machines have the same version of FlexFL?", error)
            return
        yield Frame(seq=frame.seq, data=data)


def register() -> None:
    """Make the driver known to NVFlare in this process."""
    load_comm_drivers()
    take_over()


def take_over() -> None:
    """Put the driver in the place of NVFlare's own, which has been registered."""
    for scheme in GrpcDriver.supported_transports():
        driver_mgr.drivers[scheme] = CompactDriver
