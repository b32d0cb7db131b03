"""Measure what the link of a client carries: idle, and for each iteration besides the messages themselves.

sudo python tools/link.py [--heartbeat 60] [--minutes 5] [--iterations 400]

A server, two clients and an admin run in network namespaces (tests/network/namespaces.py). What interfaces
have counted, Ethernet, IP and TCP headers included, is printed by client.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from flexfl.results import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from network.machines import Machines, machines
from network.namespaces import Network

CLIENTS = ["north", "south"]
MONTH = 365.25 / 12 * 86400
SPEC = """
[data]
clients = 2
partition = "iid"
[train]
iterations = {iterations}
evaluate_every = {iterations}
[budget]
compute = 0.25
uplink = 0.01
downlink = 0.01
[record]
clients = true
[deploy]
deadline = 60.0
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heartbeat", type=float, default=60.0, help="seconds")
    parser.add_argument("--minutes", type=float, default=5.0, help="of idle time")
    parser.add_argument("--iterations", type=int, default=400)
    given = parser.parse_args()
    with (
        Network(["server", "admin", *CLIENTS]) as network,
        tempfile.TemporaryDirectory() as folder,
        machines(network, Path(folder), CLIENTS, given.heartbeat) as running,
    ):
        idle(network, given.heartbeat, 60 * given.minutes)
        # Two runs of different lengths: what each costs once, such as the model, drops out.
        short, long = (measure(running, count) for count in (given.iterations // 4, given.iterations))
        report(short, long, given.iterations - given.iterations // 4)


def idle(network: Network, heartbeat: float, seconds: float) -> None:
    """Print what idle clients carry."""
    time.sleep(min(10.0, heartbeat))
    before = {name: network.counters(name) for name in CLIENTS}
    time.sleep(seconds)
    for name in CLIENTS:
        up, down = (b - a for a, b in zip(before[name], network.counters(name), strict=True))
        beats = seconds / heartbeat
        print(f"{name} idle for {seconds:.0f} s: {up} bytes up, {down} down", end="; ")
        print(f"a heartbeat {(up + down) / beats:.0f}", end="; ")
        print(f"with one in 10 min {(up + down) / beats / 600 * MONTH / 1e6:.2f} MB a month", flush=True)


def measure(running: Machines, iterations: int) -> np.ndarray:
    """Return bytes up, down, and of messages up and down, by client, of one run."""
    before = [running.network.counters(name) for name in CLIENTS]
    run = Run(running.submit(f"of-{iterations}", SPEC.format(iterations=iterations)))
    after = [running.network.counters(name) for name in CLIENTS]
    up, down = np.subtract(after, before).T
    sent = run.clients["uplink_bytes"].sum(axis=0)
    return np.array([up, down, sent, np.full(len(CLIENTS), run.iterations["downlink_bytes"].sum())])


def report(short: np.ndarray, long: np.ndarray, iterations: int) -> None:
    """Print bytes by iteration."""
    for name, (up, down, sent, received) in zip(CLIENTS, ((long - short) / iterations).T, strict=True):
        print(f"{name}, each iteration: {up:.0f} bytes up, of which {sent:.0f} are the update", end="; ")
        print(f"{down:.0f} down, {received:.0f}; overhead {up - sent:.0f} and {down - received:.0f}")


if __name__ == "__main__":
    main()
