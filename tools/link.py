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
[control]
tradeoff = {{ compute = 0.02, uplink = 1e6, downlink = 1e6 }}
[costs]
uplink = {{ kind = "measured" }}
downlink = {{ kind = "measured" }}
[budget]
compute = 0.25
uplink = 1200.0
downlink = 1200.0
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
        iterations(running, given.iterations)


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


def iterations(running: Machines, count: int) -> None:
    """Print what an iteration carries besides updates, once what begins a run is over."""
    before = {name: running.network.counters(name) for name in CLIENTS}
    run = Run(running.submit("bytes", SPEC.format(iterations=count)))
    late = slice(count // 4, None)
    cost, sent = run.clients["uplink_cost"], run.clients["uplink_bytes"]
    for place, name in enumerate(CLIENTS):
        counted = running.network.counters(name)[0] - before[name][0]
        print(
            f"{name}: charged {cost[:, place].sum():.0f} bytes up, its interface counted {counted}", end="; "
        )
        empty = sent[late, place] == 0
        idle = f"{cost[late, place][empty].mean():.0f}" if empty.any() else "?"
        besides = (cost - sent)[late, place].mean()
        print(f"an iteration {besides:.0f} besides {sent[late, place].mean():.0f}, {idle} without an update")
    cost, sent = run.iterations["downlink_cost"][late], run.iterations["downlink_bytes"][late]
    print(f"down, mean of clients: an iteration {(cost - sent).mean():.0f} besides {sent.mean():.0f}")


if __name__ == "__main__":
    main()
