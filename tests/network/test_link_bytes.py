"""What is charged for the link is what the kernel has counted on the interfaces of real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from flexfl.deploy.link import HEARTBEAT_BYTES
from flexfl.deploy.nvflare.kits import HEARTBEAT
from flexfl.results import Run
from network.machines import Machines, machines
from network.namespaces import Network

CLIENTS = ["north", "south"]
PLACES = ["server", "admin", "relay", *CLIENTS]
MONTH = 365.25 / 12 * 86400
BEAT = 4.0
SPEC = """
[data]
clients = 2
partition = "iid"

[train]
iterations = 400
evaluate_every = 200

[control]
tradeoff = { compute = 0.02, uplink = 1e6, downlink = 1e6 }

[costs]
uplink = { kind = "measured" }
downlink = { kind = "measured" }

[budget]
uplink = 1000.0
downlink = 1000.0

[record]
clients = true

[deploy]
deadline = 60.0
"""

SERVE = """
import socket
connection, _ = socket.create_server(("", 7000)).accept()
incoming = connection.makefile("rb")
while size := incoming.read(4):
    incoming.read(int.from_bytes(size, "big"))
    connection.sendall(bytes(500))
"""
ASK = """
import random, socket, time
from flexfl.deploy.nvflare.traffic import connections
random.seed(1)
server = socket.create_connection(("server", 7000))
for _ in range(200):
    size = random.choice([100, 300, 2000, 20000])
    server.sendall(size.to_bytes(4, "big") + bytes(size))
    server.recv(10000)
time.sleep(0.3)
[found] = connections(remote_port=7000)
print(found.sent, found.received, flush=True)
input()
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(PLACES) as made:
        yield made


@pytest.fixture(scope="module")
def federation(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(network, tmp_path_factory.mktemp("links"), CLIENTS, BEAT) as running:
        yield running


def carried(network: Network, before: dict[str, tuple[int, int]], name: str) -> tuple[int, int]:
    """The bytes that a machine's interface has sent and received since then."""
    sent, received = network.counters(name)
    return sent - before[name][0], received - before[name][1]


def test_bytes_and_segments_come_to_what_the_interface_counts(network: Network) -> None:
    before = {"north": network.counters("north")}
    server = subprocess.Popen([*network.within("server"), sys.executable, "-c", SERVE])
    time.sleep(0.5)
    with subprocess.Popen(
        [*network.within("north"), sys.executable, "-c", ASK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        sent, received = map(int, client.stdout.readline().split())
        assert carried(network, before, "north") == pytest.approx((sent, received), rel=0.02)
        client.communicate("\n")
    server.kill()
    server.wait()


def test_an_idle_client_takes_less_than_5_mb_a_month(federation: Machines) -> None:
    network, beats = federation.network, 3
    time.sleep(BEAT)  # what its start has left to say
    before = {name: network.counters(name) for name in CLIENTS}
    time.sleep(beats * BEAT)
    for name in CLIENTS:
        each = sum(carried(network, before, name)) / beats
        assert 100 < each <= HEARTBEAT_BYTES * (1 + 1 / beats)  # one more may fall in
        assert each * MONTH / HEARTBEAT < 5e6


def test_what_is_charged_is_what_the_interfaces_count(federation: Machines) -> None:
    network = federation.network
    before = {name: network.counters(name) for name in PLACES}
    run = Run(federation.submit("bytes", SPEC))
    uplink = run.clients["uplink_cost"].sum(axis=0)
    for name, charged in zip(CLIENTS, uplink, strict=True):
        assert charged == pytest.approx(carried(network, before, name)[0], rel=0.05)
    received = [carried(network, before, name)[1] for name in CLIENTS]
    assert run.iterations["downlink_cost"].sum() == pytest.approx(sum(received) / 2, rel=0.05)
    overhead = run.clients["uplink_cost"] - run.clients["uplink_bytes"]
    assert overhead[50:].mean() < 400
