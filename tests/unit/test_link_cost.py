"""Bytes on the link as a cost: nothing that was counted is left out, and estimates come to the truth."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.compress import TopK
from flexfl.control.online import Online
from flexfl.control.policy import Budget
from flexfl.control.setup import Setup
from flexfl.costs import MeasuredMessage
from flexfl.costs.linear import Affine
from flexfl.costs.link import SEGMENT, SEGMENT_HEADERS, AffineIdle, LinkBytes
from flexfl.streams import Entities, Moment, Streams

DIM = 40
CLIENT = Entities.one_client(0, 1)
PER_BYTE = 1 + SEGMENT_HEADERS / SEGMENT
ITERATION = st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(1, 3000), st.booleans())


class Counter:
    """A link that carries what it is told to; None while nobody can read it."""

    def __init__(self) -> None:
        self.total, self.readable = 0.0, True

    def __call__(self) -> float | None:
        return self.total if self.readable else None


def pay(link: LinkBytes, k: int, nbytes: int) -> float:
    """What is charged for an iteration; the bill may be looked at before."""
    charged = link.bill(k, nbytes)
    assert link.bill(k, nbytes) == charged
    link.settle(k, nbytes)
    return charged


@given(st.lists(ITERATION, min_size=1, max_size=40))
def test_charges_come_to_what_was_counted_and_the_last_estimate(seen: list[tuple[Any, ...]]) -> None:
    """Σ charged = max over the past of (counted then + estimate then): never behind, never negative."""
    counter = Counter()
    link = LinkBytes(counter, 0.3)
    paid, most = 0.0, 0.0
    for carried, k, size, _ in seen:
        counter.total += carried
        link.look()
        nbytes = size if k else 0
        charged = pay(link, k, nbytes)
        assert charged >= 0
        paid, most = paid + charged, max(most, counter.total + link.expected(k, nbytes))
        assert paid == pytest.approx(most)


@given(st.lists(ITERATION, min_size=2, max_size=40))
def test_a_meter_that_vanishes_is_replaced_by_the_estimate(seen: list[tuple[Any, ...]]) -> None:
    counter = Counter()
    link = LinkBytes(counter, 0.3)
    paid = 0.0
    for carried, k, size, counter.readable in seen:
        counter.total += carried
        link.look()
        nbytes = size if k else 0
        if not counter.readable and link.owed == 0:
            expected = link.expected(k, nbytes)
            assert pay(link, k, nbytes) == pytest.approx(expected)
            paid += expected
            continue
        charged = pay(link, k, nbytes)
        assert charged >= 0
        paid += charged
    counter.readable = True
    link.look()
    assert link.owed == pytest.approx(counter.total - paid, abs=1e-6)
    assert paid + pay(link, 0, 0) >= counter.total - 1e-6


def test_a_meter_that_vanishes_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter()
    counter.readable = False
    link = LinkBytes(counter, 0.3)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            link.look()
            pay(link, 1, 100)
    assert len(caplog.records) == 1
    assert "estimated" in caplog.text


def test_estimates_come_to_what_the_link_adds() -> None:
    """220 bytes in every iteration, 90 more with a message, and 66 for each full segment of it."""
    rng, counter = np.random.default_rng(0), Counter()
    link = LinkBytes(counter, 0.2)
    link.look()
    for _ in range(300):
        k = int(rng.integers(0, 3))
        nbytes = int(rng.integers(50, 5000)) if k else 0
        pay(link, k, nbytes)
        counter.total += 220 + (90 + nbytes * PER_BYTE if k else 0)
        link.look()
    assert link.idle == pytest.approx(220, rel=1e-6)
    assert link.per_message == pytest.approx(90, rel=1e-6)
    cost = link.cost(20.0, np.asarray(5.0))
    assert float(cost.idle) == pytest.approx(220, rel=1e-6)
    assert float(cost(0)) == pytest.approx(max(0, 220 + link.owed))
    assert float(cost(7) - cost(0)) == pytest.approx(90 + PER_BYTE * (20 + 35))


def test_a_connection_that_is_made_again_is_charged_but_hardly_moves_the_estimate() -> None:
    counter = Counter()
    link = LinkBytes(counter, 0.1)
    link.look()
    paid = []
    for t in range(200):
        paid.append(pay(link, 0, 0))
        counter.total += 220 + (50_000 if t == 150 else 0)
        link.look()
        if t == 150:
            assert link.idle < 220 + 0.1 * (4 * 220 + 256)
    assert sum(paid) >= 199 * 220 + 50_000 - 1e-6


def test_memory_goes_on_with_the_same_meter_and_settles_with_another() -> None:
    counter = Counter()
    cost = attached(counter)
    moment = Streams(1).moment("uplink", 0, DIM, CLIENT)
    for nbytes in (300, 0, 400):
        cost.at(moment)
        counter.total += 500
        paid = float(cost.bill(nbytes // 10, nbytes))
        cost.observe(nbytes // 10, nbytes)
    kept = cost.state()
    counter.total += 777
    before = float(cost.at(moment)(0))
    cost.restore(kept)  # as after an error in the middle of an iteration
    assert float(cost.at(moment)(0)) == pytest.approx(before)
    other = attached(Counter())  # another process, whose meter begins at 0
    other.restore(kept)
    assert paid > 0
    assert other.link is not None
    assert other.link.owed == pytest.approx(0.0, abs=1e-6)  # what was charged for is taken to have been sent
    plain = MeasuredMessage(count="payload")
    plain.attach(counter)
    assert plain.link is None
    plain.restore(kept)
    other.restore(plain.state())  # of a machine without a meter


def attached(counter: Counter) -> MeasuredMessage:
    cost = MeasuredMessage()
    cost.attach(counter)
    return cost


@dataclass(frozen=True)
class Fixed:
    cost: Affine

    def at(self, moment: Moment) -> Affine:
        return self.cost


def sender(cost: Any, budget: float = 30.0) -> Any:
    setup = Setup(
        policy=Online(tradeoff=5.0, initial_queue=1.0, floor=0.001),
        costs={"uplink": cost},
        compressors={"uplink": TopK()},
        budgets={"uplink": Budget(budget)},
        streams=Streams(1),
    )
    return setup.sender("uplink", CLIENT, DIM)


@given(st.floats(0, 1e3), st.floats(0, 50), st.floats(0, 5), st.integers(0, 99))
def test_what_is_paid_anyway_does_not_move_a_decision(
    idle: float, beta: float, gamma: float, seed: int
) -> None:
    """The closed form, held against every k."""
    b = np.random.default_rng(seed).standard_normal(DIM)
    cost = AffineIdle(np.asarray(beta), np.asarray(gamma), np.asarray(idle))
    [message], _, sending = sender(Fixed(cost)).send(0, b)
    assert float(cost(0)) == idle
    assert float(sending.charged) == pytest.approx(float(cost(message.components)))
    sorted_energy = np.sort(b**2)[::-1]
    left = b @ b - np.concatenate([[0.0], np.cumsum(sorted_energy)])
    objective = 5.0 * left + 1.0 * np.asarray([float(cost(k)) for k in range(DIM + 1)])
    assert objective[message.components] == pytest.approx(objective.min())


def test_a_sender_is_charged_what_the_link_has_carried() -> None:
    """The queue, too: with a budget, what is left of it after the overhead is what messages get."""
    counter, rng = Counter(), np.random.default_rng(1)
    uplink = sender(MeasuredMessage(per_component=9.0), budget=400.0)
    uplink.cost.attach(counter)
    charged, queues = [], []
    for t in range(400):
        [_], _, sending = uplink.send(t, 20 * rng.standard_normal(DIM))
        queues.append(float(uplink.rule.pressure))
        charged.append(float(sending.charged))
        size = float(sending.nbytes)
        counter.total += 200 + (60 + size * PER_BYTE if size else 0)
    assert sum(charged) == pytest.approx(counter.total, rel=0.01)
    for (before, after), cost in zip(itertools.pairwise(queues), charged[1:], strict=True):
        assert after == pytest.approx(max(before + cost - 400.0, 0.001))
    assert np.mean(charged[100:]) == pytest.approx(400.0, rel=0.1)
