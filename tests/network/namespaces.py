"""Machines of a federation as network namespaces of this one: each with an address, an interface, a name.

Needs root and `ip` (iproute2). Every machine has the interface eth0, with an address of 10.87.0.0/24, on one
switch; segments are cut to size before the interface counts them: its counters are those of a real link.

    with Network(["server", "north"]) as network:
        subprocess.Popen([*network.within("north"), "ping", "server"])
        network.counters("north")  # bytes sent, bytes received
        with network.limited("north", "server", 8002, rate=20_000): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

HEADERS, SEGMENT = 66, 1448
_OFFLOADS = """
import array, fcntl, socket, struct
with socket.socket() as any_socket:
    for command in (0x1F, 0x24, 0x2C):  # ETHTOOL_STSO, SGSO, SGRO
        value = array.array("B", struct.pack("II", command, 0))
        request = struct.pack("16sP", b"eth0", value.buffer_info()[0]).ljust(40, bytes(1))
        fcntl.ioctl(any_socket, 0x8946, request)  # SIOCETHTOOL
"""


def run(*command: str) -> str:
    """Run a command and return what it prints; raise with what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Network:
    """Namespaces on a switch; all are gone at the end, with the processes in them.

    Args:
        machines: their names, which resolve to their addresses in each of them.
    """

    def __init__(self, machines: Sequence[str]) -> None:
        self._id = f"fx{os.getpid() % 100000}"
        self.addresses = {name: f"10.87.0.{place + 1}" for place, name in enumerate(machines)}
        self._switch = f"{self._id}-switch"

    def namespace(self, machine: str) -> str:
        return f"{self._id}-{machine}"

    def within(self, machine: str) -> list[str]:
        """Return the command that runs the one after it on a machine."""
        return ["ip", "netns", "exec", self.namespace(machine)]

    def __enter__(self) -> Network:
        try:
            run("ip", "netns", "add", self._switch)
            run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self._switch, "link", "set", "bridge", "up")
            for place, name in enumerate(self.addresses):
                self._add(name, place)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _add(self, name: str, place: int) -> None:
        space, port = self.namespace(name), f"port{place}"
        run("ip", "netns", "add", space)
        self.resolve(name, {})
        # Without IPv6 nothing is sent but what processes send.
        run(*self.within(name), "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
        run("ip", "-n", self._switch, "link", "add", port, "type", "veth", "peer", "eth0", "netns", space)
        run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
        run("ip", "-n", space, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", space, "link", "set", device, "up")
        run(*self.within(name), sys.executable, "-c", _OFFLOADS)

    def resolve(self, machine: str, other: dict[str, str]) -> None:
        """Let names resolve on a machine: those of all machines, and `other` ones instead."""
        folder = Path("/etc/netns", self.namespace(machine))
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{address} {name}" for name, address in (self.addresses | other).items()]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def counters(self, machine: str) -> tuple[int, int]:
        """Return the bytes that a machine's interface has sent and received, headers included."""
        [found] = json.loads(run("ip", "-n", self.namespace(machine), "-s", "-j", "link", "show", "eth0"))
        counted = found["stats64"]
        return int(counted["tx"]["bytes"]), int(counted["rx"]["bytes"])

    @contextlib.contextmanager
    def limited(self, machine: str, server: str, port: int, rate: float) -> Iterator[None]:
        """Let a machine reach a server's port only through a relay of `rate` bytes a second each way.

        The relay runs on the machine `relay`, which must be one of the network's. Begin before the machine's
        processes do: names are resolved when they connect.
        """
        command = [sys.executable, __file__, str(port), self.addresses[server], str(rate)]
        relay = subprocess.Popen([*self.within("relay"), *command])
        self.resolve(machine, {server: self.addresses["relay"]})
        try:
            time.sleep(0.5)
            assert relay.poll() is None
            yield
        finally:
            self.resolve(machine, {})
            relay.kill()
            relay.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for space in (*map(self.namespace, self.addresses), self._switch):
            found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
            shutil.rmtree(f"/etc/netns/{space}", ignore_errors=True)


class Bucket:
    """A token bucket: `rate` bytes a second, and as many at once as pass in a tenth of a second."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(rate / 10, SEGMENT + HEADERS)
        self._tokens, self._then = self._most, time.monotonic()

    async def take(self, size: int) -> None:
        """Wait until so many bytes may pass."""
        now = time.monotonic()
        self._tokens = min(self._most, self._tokens + self._rate * (now - self._then)) - size
        self._then = now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)


async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, bucket: Bucket) -> None:
    """Pass on what comes, a segment at a time, until it ends."""
    with contextlib.suppress(ConnectionError):
        while data := await source.read(SEGMENT):
            await bucket.take(len(data) + HEADERS)
            sink.write(data)
            await sink.drain()
    with contextlib.suppress(ConnectionError, RuntimeError):
        sink.close()


async def relay(port: int, server: str, rate: float) -> None:
    """Forward connections to a port of a server; all share the rate, up and down apart."""
    up, down = Bucket(rate), Bucket(rate)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(server, port, limit=SEGMENT)
        await asyncio.gather(forward(reader, back, up), forward(there, writer, down))

    listening = await asyncio.start_server(accept, "0.0.0.0", port, limit=SEGMENT)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
