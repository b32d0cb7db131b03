"""The virtual clock against a server that is played out second by second, event after event."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfl.control.knobs import Computing, Sending
from flexfl.control.timing import Timing, VirtualClock
from flexfl.errors import CostError
from flexfl.streams import Streams

DIM = 7


class Listed:
    """Times that were written down: of one unit of what is decided, by iteration and entity."""

    unit = "second"

    def __init__(self, table):
        self.table = np.asarray(table, dtype=float)

    def at(self, moment):
        return lambda amount: self.table[moment.iteration] * (np.asarray(amount) > 0)


def computing(computed):
    shape = np.shape(computed)
    return Computing(np.ones(shape), np.asarray(computed, dtype=bool), *(np.zeros(shape),) * 3)


def sending(role, sent):
    k = np.asarray(sent, dtype=np.int64)
    zeros = np.zeros(k.shape)
    return Sending(role, k, k, 10 * k, zeros, zeros)


@dataclass
class Played:
    """A server that asks, waits and closes, with clients in a dict; slow and obvious."""

    overhead: float
    deadline: float
    now: float = 0.0
    ready_at: dict = field(default_factory=dict)  # when the late ones are done
    message: dict = field(default_factory=dict)  # of these, when their message arrives
    ignored: set = field(default_factory=set)

    def iteration(self, times, down):
        """Play an iteration; `times` has (seconds, whether it sends) of each client that would take part."""
        asked = self.now + self.overhead
        taking_part = [n for n in times if self.ready_at.get(n, 0.0) <= self.now]
        answers = {n: asked + times[n][0] for n in taking_part}
        expected = [answers[n] for n in taking_part if n not in self.ignored]
        if expected:
            closes = min(asked + self.deadline, max(expected))
        else:
            busy = [max(asked, at) for at in self.ready_at.values() if at > self.now]
            closes = min([asked + self.deadline, *answers.values(), *busy])
        landed = sorted(n for n, at in self.message.items() if at <= closes)
        for n in landed:
            del self.message[n]
        late = sorted(n for n in taking_part if answers[n] > closes)
        for n in late:
            self.ready_at[n] = answers[n]
            self.ignored.add(n)
            if times[n][1]:
                self.message[n] = answers[n]
        for n in taking_part:
            if times[n][0] < self.deadline:
                self.ignored.discard(n)
        self.now = closes + down
        return taking_part, [n for n in late if times[n][1]], landed


SECONDS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 3.0, 7.0, 20.0, math.inf])  # exact in binary


@st.composite
def histories(draw):
    clients, iterations = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    rows = st.lists(SECONDS, min_size=clients, max_size=clients)
    flags = st.lists(st.booleans(), min_size=clients, max_size=clients)
    table = [(draw(rows), draw(rows), draw(flags), draw(flags)) for _ in range(iterations)]
    down = [draw(st.sampled_from([0.0, 0.125, 2.0])) for _ in range(iterations)]
    return table, down, draw(st.sampled_from([0.5, 2.0, 4.0])), draw(st.sampled_from([0.125, 1.0]))


@settings(max_examples=300, deadline=None)
@given(histories())
def test_every_iteration_goes_as_it_would_be_played(history):
    table, down, deadline, overhead = history
    models = {
        "compute": Listed([row[0] for row in table]),
        "uplink": Listed([row[1] for row in table]),
        "downlink": Listed(down),
    }
    timing = Timing(models, overhead=overhead, deadline=deadline)
    clients = len(table[0][0])
    clock, played = timing.start(Streams(1), clients, DIM), Played(overhead, deadline)
    for t, (compute, uplink, computes, sends) in enumerate(table):
        reachable = [n for n in range(clients) if compute[n] < math.inf and uplink[n] < math.inf]
        times = {n: (compute[n] * computes[n] + uplink[n] * sends[n] if n in reachable else 0.0, sends[n])
                 for n in reachable}  # fmt: skip
        taking_part, late, landed = played.iteration(times, down[t])
        away = clock.begin(t)
        present = np.ones(clients, dtype=bool) if away is None else ~away
        assert np.flatnonzero(present).tolist() == taking_part
        found = clock.wait(
            computing(np.array(computes) & present), sending("uplink", np.array(sends) & present)
        )
        assert found.late.tolist() == late
        assert found.landed.tolist() == landed
        before = clock.seconds
        clock.advance(sending("downlink", 1))
        assert clock.seconds == played.now
        assert clock.seconds >= before + overhead
        if t == len(table) // 2:  # go on from its memory
            again = timing.start(Streams(1), clients, DIM)
            again.restore({name: array.copy() for name, array in clock.state().items()})
            clock = again


def clock_of(clients=3, **settings) -> VirtualClock:
    return Timing(**settings).start(Streams(1), clients, DIM)


def step(clock, t, computed, spent, sent=None, charged=None, down=0.0):
    shape, away = np.shape(computed), clock.begin(t)
    zeros = np.zeros(shape)
    found = Computing(zeros + 1, np.asarray(computed, bool), zeros, np.asarray(spent, float), zeros)
    k = np.zeros(shape, dtype=np.int64) if sent is None else np.asarray(sent)
    up = Sending("uplink", k, k, k, zeros if charged is None else np.asarray(charged, float), zeros)
    arrivals = clock.wait(found, up)
    none = np.zeros((), dtype=np.int64)
    clock.advance(Sending("downlink", none, none, none, np.asarray(down), np.asarray(0.0)))
    return away, arrivals


def test_the_costs_themselves_are_the_time():
    clock = clock_of(charged=("compute", "uplink", "downlink"), overhead=0.5)
    step(clock, 0, [1, 0, 1], [2.0, 0.0, 1.0], [0, 0, 5], [0.0, 0.0, 4.0], down=3.0)
    assert clock.seconds == 0.5 + 5.0 + 3.0
    step(clock, 1, [0, 0, 0], [0.0, 0.0, 0.0])
    assert clock.seconds == 9.0


def test_costs_in_other_units_take_no_time():
    clock = clock_of(charged=("uplink",), overhead=0.5)
    step(clock, 0, [1, 1, 1], [2.0, 9.0, 1.0], [1, 0, 0], [0.25, 0.0, 0.0], down=3.0)
    assert clock.seconds == 0.75


def test_every_iteration_may_take_as_long():
    clock = clock_of(iteration=30.0, charged=("compute",))
    for t in range(4):
        away, arrivals = step(clock, t, [1, 1, 1], [99.0, 1.0, 1.0])
        assert away is None
        assert not len(arrivals.late)
    assert clock.seconds == 120.0


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_a_time_that_is_none_is_refused(wrong):
    clock = clock_of(models={"compute": Listed([[1.0, wrong, 1.0]])})
    with pytest.raises(
        CostError, match=r"clock\.compute must be finite and ≥ 0, got .* for client 1 in iter"
    ):
        step(clock, 0, [1, 1, 1], [0.0, 0.0, 0.0])


def test_a_memory_of_another_run_is_refused():
    with pytest.raises(ValueError, match=r"clock\.slow must have 3 numbers, got 4"):
        clock_of(3).restore(clock_of(4).state())
