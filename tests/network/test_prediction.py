"""A simulation with a clock predicts a federation of real processes over a limited link: seconds and bytes.

The rate and the burst of the link are known; what a computation, a round trip without messages, and the bytes
of a conversation without messages take is measured beforehand, on this machine.
"""

from __future__ import annotations

import statistics
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import flexfl
from flexfl.deploy.nvflare.kits import SERVER
from flexfl.deploy.plan import build_learner, live_file
from flexfl.results import Run
from flexfl.results.observer import Live
from flexfl.spec.schema import parse
from network.machines import PORT, Machines, machines
from network.namespaces import HEADERS, SEGMENT, Network

CLIENTS = ["north", "south"]
LIMITED = 0  # north, which everybody waits for
RATE = 25_000.0  # bytes in a second, 200 kbit/s
SPEC = """
[data]
clients = 2
partition = "iid"

[train]
iterations = {iterations}
evaluate_every = 10000

[control]
policy = "top-k"
send_ratio = {ratio}

[record]
clients = true

[deploy]
deadline = 60.0
"""
SETTLED = 5
"""Iterations after which the conversation is that of the others: the first has the whole model in it."""


class Counted(NamedTuple):
    """What the interface of the limited client had sent and received when so many iterations were over."""

    iteration: int
    up: int
    down: int


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("prediction")
    with (
        Network([SERVER, "admin", "relay", *CLIENTS]) as network,
        network.limited(CLIENTS[LIMITED], SERVER, PORT, RATE),
        machines(network, folder, CLIENTS, 60.0) as running,
    ):
        yield running


@contextmanager
def counting(federation: Machines, name: str) -> Iterator[list[Counted]]:
    """Look at the interface whenever the run has come further."""
    found, over = list[Counted](), threading.Event()
    live = live_file(federation.folder / SERVER / "flexfl", name)

    def look() -> None:
        while not over.wait(0.02):
            status = Live.read(live)
            if status is None or status.more.get("state") != "training":
                continue
            if not found or status.iteration > found[-1].iteration:
                found.append(Counted(status.iteration, *federation.network.counters(CLIENTS[LIMITED])))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


class Measured(NamedTuple):
    """The training part of a run: from one iteration to another."""

    run: Run
    first: int
    last: int
    up: float
    down: float

    @property
    def seconds(self) -> float:
        clock = self.run.iterations["clock"]
        return float(clock[self.last - 1] - clock[self.first - 1])

    def payload(self) -> tuple[float, float]:
        """The bytes of messages up by the limited client, and down."""
        part = slice(self.first, self.last)
        up = self.run.clients["uplink_bytes"][part, LIMITED].sum()
        return float(up), float(self.run.iterations["downlink_bytes"][part].sum())


def train(federation: Machines, name: str, ratio: float, iterations: int) -> Measured:
    with counting(federation, name) as counted:
        run = Run(federation.submit(name, SPEC.format(ratio=ratio, iterations=iterations)))
    settled = [one for one in counted if one.iteration >= SETTLED]
    first, last = settled[0], settled[-1]
    return Measured(run, first.iteration, last.iteration, last.up - first.up, last.down - first.down)


def seconds_of_a_gradient(spec: dict[str, Any]) -> float:
    learner = build_learner(parse(spec), LIMITED)
    params, taken = learner.model.params.numpy().copy(), []
    for used in range(12):
        start = time.perf_counter()
        learner.gradient(params, used, used)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def test_seconds_and_bytes_of_a_federation_over_a_limited_link(federation: Machines, tmp_path: Path) -> None:
    # Beforehand: next to nothing is sent, then a little.
    quiet = train(federation, "quiet", ratio=1e-6, iterations=300)
    some = train(federation, "some", ratio=0.05, iterations=30)
    count = quiet.last - quiet.first
    idle = [carried / count for carried in (quiet.up, quiet.down)]
    on_link = [
        (carried - (some.last - some.first) * flows) / payload
        for carried, flows, payload in zip((some.up, some.down), idle, some.payload(), strict=True)
    ]  # bytes on the link for a byte of a message: headers, acknowledgements of what comes the other way
    given = tomllib.loads(SPEC.format(ratio=0.1, iterations=30))
    computing = seconds_of_a_gradient(given)
    overhead = max(1e-3, quiet.seconds / count - computing)

    framed = 1 + HEADERS / SEGMENT  # as the relay counts
    link = {"kind": "rate", "burst": RATE / 10 / framed}
    rate, fast = 8 * RATE / framed, 1e9
    predicted = flexfl.simulate(
        parse(given),
        clock={
            "compute": {"kind": "constant", "per_gradient": computing},
            "uplink": link | {"rate": [rate, fast], "idle": [idle[0] / framed, 0.0]},
            "downlink": link | {"rate": rate, "idle": idle[1] / framed},
            "overhead": overhead,
        },
        out=tmp_path / "predicted",
    ).run
    real = train(federation, "real", ratio=0.1, iterations=30)
    expected = Measured(predicted, real.first, real.last, 0.0, 0.0)
    count = real.last - real.first
    assert count >= 15
    assert expected.payload() == real.payload()  # the same decisions
    carried = [
        payload * factor + count * flows
        for payload, factor, flows in zip(expected.payload(), on_link, idle, strict=True)
    ]
    assert expected.seconds == pytest.approx(real.seconds, rel=0.15)
    assert carried == pytest.approx([real.up, real.down], rel=0.05)
