"""A budget of bytes for a time holds on the interfaces of real processes, idle time included."""

from __future__ import annotations

import time
from pathlib import Path

from flexfl.results import Run
from network.machines import machines
from network.namespaces import Network

CLIENTS = ["north", "south", "west"]
UP, DOWN, WINDOW = 60_000, 120_000, 60.0
"""Bytes in a window of seconds: 50 MB a month, in minutes."""
IDLE = 8.0
SPEC = f"""
[data]
clients = 3
partition = "iid"

[model]
name = "mlp"
options = {{ hidden = 10 }}

[train]
iterations = 30
evaluate_every = 30

[control]
policy = "price"

[costs]
uplink = {{ kind = "measured" }}
downlink = {{ kind = "measured" }}

[budget]
uplink = "{UP} B / minute"
downlink = "{DOWN} B / minute"
hard = true

[record]
clients = true

[deploy]
deadline = 60.0
"""


def test_what_interfaces_count_stays_under_the_budget(tmp_path: Path) -> None:
    with (
        Network(["server", "admin", *CLIENTS]) as network,
        machines(network, tmp_path / "kits", CLIENTS, heartbeat=4.0) as running,
    ):
        time.sleep(1.0)  # what connecting has left to say
        start = time.monotonic()
        before = {name: network.counters(name) for name in CLIENTS}
        time.sleep(IDLE)
        run = Run(running.submit("month", SPEC))
        time.sleep(IDLE)
        after = {name: network.counters(name) for name in CLIENTS}
        share = (time.monotonic() - start) / WINDOW
    spent = run.clients["uplink_cost"].sum(axis=0)
    components = run.clients["uplink_components"].sum(axis=0)
    down = [after[name][1] - before[name][1] for name in CLIENTS]
    assert sum(down) / len(down) <= DOWN * share  # the downlink is charged what a client gets on average
    for name, charged, sent in zip(CLIENTS, spent, components, strict=True):
        up = after[name][0] - before[name][0]
        assert up <= UP * share
        assert charged <= UP * share
        assert charged >= 0.9 * up - 5000  # all but heartbeats and what starts and ends a job
        assert sent > 0  # and something was sent
