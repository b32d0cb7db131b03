"""Meters of a link: what they count never falls, whatever happens to connections and counters."""

from __future__ import annotations

import logging
import math
import socket
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.deploy.link import HEARTBEAT_BYTES, Meter, heartbeat_for
from flexfl.deploy.nvflare.kits import HEARTBEAT, communication, heartbeat_of
from flexfl.deploy.nvflare.traffic import Traffic, client_meter

COUNTS = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
READINGS = st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), COUNTS), min_size=1, max_size=20)


class Readings:
    """Counters that are read one after the other."""

    def __init__(self, readings: list[Any]) -> None:
        self._left = list(readings)

    def __call__(self) -> Mapping[Hashable, tuple[int, int]] | None:
        found: Mapping[Hashable, tuple[int, int]] | None = self._left.pop(0)
        return found


@given(READINGS)
def test_a_meter_never_falls(readings: list[Any]) -> None:
    meter, before = Meter(Readings([{}, *readings])), (0, 0)
    for reading in readings:
        found = meter.sample()
        assert (found is None) == (reading is None)
        if found is not None:
            assert found >= before
            assert found[1] >= before[1]
            before = found


def test_what_connections_carried_is_added_up() -> None:
    readings = [
        {"old": (100, 10), "own": (30, 3)},
        {"old": (150, 10), "own": (30, 3), "new": (7, 5)},
        {"new": (8, 5)},  # the others have ended
        None,
        {"new": (20, 6)},
        {"new": (2, 6)},  # wrapped or set back
        {"new": (5, 6)},
    ]
    meter = Meter(Readings(readings), mine=lambda name: name == "own")
    assert meter.available
    assert meter.sample() == (30 + 50 + 7, 3 + 5)
    assert meter.sample() == (30 + 50 + 8, 8)
    assert meter.sample() is None
    assert meter.sample() == (30 + 50 + 20, 9)
    assert meter.sample() == (100, 9)
    assert meter.up() == 103.0


def test_a_meter_that_cannot_be_read_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    meter = Meter(Readings([{}, None, None]))
    with caplog.at_level(logging.WARNING):
        assert meter.up() is None
        assert meter.down() is None
    assert len(caplog.records) == 1
    assert not Meter(Readings([None])).available


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_both_ends_of_a_connection_count_the_same(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    traffic = Traffic(port)
    with socket.create_connection(("127.0.0.1", port)) as client:
        served, _ = listening.accept()
        with served:
            meter = client_meter(port)
            assert meter is not None
            before = meter.sample()
            assert before is not None
            assert 0 < before[0] < 300  # its own connection, from the beginning: three segments at most
            client.sendall(bytes(1000))
            served.recv(2000)
            served.sendall(bytes(300))
            client.recv(2000)
            at_client, at_server = settled(meter, traffic)
            assert 1000 + 66 <= at_client[0] - before[0] <= 1000 + 4 * 66
            assert 300 + 66 <= at_client[1] - before[1] <= 300 + 4 * 66
            assert at_server[0] == at_client[0]
            assert 0 <= at_client[1] - at_server[1] <= 2 * 74  # the server's SYN is not among its segments
            assert traffic.by_peer() == {"127.0.0.1": at_server}


def settled(meter: Meter, traffic: Traffic) -> tuple[tuple[int, int], tuple[int, int]]:
    """What both have counted, once acknowledgements have passed."""
    found, end = (meter.sample(), traffic.sample()), time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.3)
        before, found = found, (meter.sample(), traffic.sample())
        if found == before and None not in found:
            break
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def test_other_processes_do_not_count(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    meter = client_meter(port)
    assert meter is not None
    send = (
        f"import socket; c = socket.create_connection(('127.0.0.1', {port})); c.sendall(bytes(5000)); input()"
    )
    with subprocess.Popen([sys.executable, "-c", send], stdin=subprocess.PIPE) as other:
        served, _ = listening.accept()
        with served:
            assert len(served.recv(5000, socket.MSG_WAITALL)) == 5000
            assert meter.sample() == (0, 0)
            other.communicate(b"\n")


def test_the_heartbeat_takes_a_share_of_the_budget() -> None:
    month = 365.25 / 12 * 86400
    assert HEARTBEAT_BYTES / HEARTBEAT * month < 5e6
    seconds = heartbeat_for(50e6 / month)
    assert HEARTBEAT_BYTES / seconds * month == pytest.approx(5e6)
    assert heartbeat_for(1e9) == 2.0
    assert heartbeat_for(1e-9) == 86400.0
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="must be > 0"):
            heartbeat_for(wrong)


@given(st.floats(2.0, 86400.0))
def test_a_silent_connection_is_pinged_after_the_heartbeat_and_not_too_often(heartbeat: float) -> None:
    settings = communication(heartbeat)
    options = dict(settings["grpc"]["options"])
    ping = options["grpc.keepalive_time_ms"] / 1000
    assert ping > heartbeat  # while there are heartbeats, there are no pings
    assert ping <= max(20.0, 1.25 * heartbeat) + 1e-3
    # gRPC closes the connection of one that pings more often than this.
    assert options["grpc.http2.min_recv_ping_interval_without_data_ms"] / 1000 < ping
    assert settings["heartbeat_interval"] > heartbeat


def test_a_kit_from_before_keeps_its_heartbeat(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "comm_config.json").write_text("{}")
    assert heartbeat_of(tmp_path) == 2.0
