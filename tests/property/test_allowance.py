"""What may still be spent: shares add up, hard amounts are never exceeded, the clock may do what it likes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfl.control.allowance import Allowance
from flexfl.control.budget import Budget

COSTS = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60)


def spend_within(own: Allowance, wanted: float) -> float:
    """Spend what is wanted, or nothing if that is more than is left."""
    spent = wanted if wanted <= float(own.left_each) else 0.0
    own.spend(spent)
    return spent


@given(COSTS, st.floats(0.1, 3.0))
def test_a_hard_average_is_a_total_that_is_never_exceeded(costs, limit):
    own = Allowance(Budget(limit), limit, iterations=len(costs), hard=True)
    spent = 0.0
    for t, wanted in enumerate(costs):
        own.open(t)
        left = max(0.0, limit * len(costs) - spent)
        assert float(own.left) == pytest.approx(left)
        assert float(own.target) == pytest.approx(min(left / (len(costs) - t), 10 * limit))
        spent += spend_within(own, wanted)
    assert spent <= limit * len(costs) * (1 + 1e-9)
    assert float(own.total) == pytest.approx(spent)
    assert float(own.allowed) == pytest.approx(limit * len(costs))


@given(st.integers(1, 50), st.floats(0.1, 100.0))
def test_who_spends_the_share_ends_at_the_total(iterations, total):
    own = Allowance(Budget(total, per="run"), total, iterations=iterations, hard=True)
    for t in range(iterations):
        own.open(t)
        own.spend(float(own.target))
    assert float(own.total) == pytest.approx(total)


@given(COSTS)
def test_an_average_that_is_not_hard_has_the_same_share_always_and_no_limit(costs):
    own = Allowance(Budget(0.5), 0.5, iterations=len(costs))
    for t, wanted in enumerate(costs):
        own.open(t)
        assert float(own.target) == 0.5
        assert math.isinf(own.left)
        own.spend(wanted)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(0.0, 4.0)), min_size=1, max_size=80),
    st.sampled_from([0, 80]),
)
def test_no_window_of_a_hard_rate_is_exceeded(steps, iterations):
    limit, window = 10.0, 60.0
    own = Allowance(Budget(limit, per="time", seconds=window), limit, iterations=iterations, hard=True)
    seconds, by_window = 0.0, {}
    for t, (step, wanted) in enumerate(steps):
        own.open(t, seconds)
        spent = spend_within(own, wanted)
        by_window[seconds // window] = by_window.get(seconds // window, 0.0) + spent
        seconds += step
    assert max(by_window.values()) <= limit * (1 + 1e-9)


@given(st.floats(0.01, 10.0), st.integers(20, 200))
def test_a_rate_at_an_even_pace_is_an_average(pace, iterations):
    limit, window = 6.0, 1e4
    own = Allowance(Budget(limit, per="time", seconds=window), limit, iterations=iterations, hard=True)
    for t in range(iterations):
        own.open(t, t * pace)
        if t == 0:
            assert math.isnan(own.nominal)  # no iteration was timed yet
            continue
        assert float(own.nominal) == pytest.approx(limit * pace / window)
        own.spend(float(own.target))
    assert float(own.total) == pytest.approx(limit * iterations * pace / window, rel=1e-6)


def test_a_clock_that_jumps_back_counts_as_no_time():
    own = Allowance(Budget(1.0, per="time", seconds=100.0), 1.0, hard=True)
    for t, seconds in enumerate([0.0, 10.0, 20.0, -500.0, -490.0]):
        own.open(t, seconds)
        own.spend(0.1)
    assert own.jumps == 1
    assert float(own.allowed) == pytest.approx(0.3)  # 30 seconds have passed
    assert float(own.left) >= 0


def test_what_flows_anyway_is_kept_back():
    own = Allowance(Budget(10.0, per="run"), 10.0, iterations=10, hard=True)
    own.open(0, idle=0.5)
    assert float(own.left) == pytest.approx(10.0 - 9 * 0.5)
    own.open(9, idle=0.5)
    assert float(own.left) == pytest.approx(10.0)


def test_members_share_evenly():
    members = np.array([0, 0, 1, 0])
    limits = np.array([3.0, 5.0])
    own = Allowance(
        Budget(limits, members),
        limits,
        iterations=2,
        members=members,
        hard=True,
        sharing=np.bincount(members),
    )
    own.open(0)
    np.testing.assert_allclose(own.left_each, [2.0, 2.0, 10.0, 2.0])
    own.spend(np.array([1.0, 2.0, 4.0, 0.5]))
    own.open(1)
    np.testing.assert_allclose(own.left, [2.5, 6.0])
    np.testing.assert_allclose(own.left_each, [2.5 / 3, 2.5 / 3, 6.0, 2.5 / 3])


@given(COSTS, st.integers(0, 59))
def test_a_memory_that_is_restored_goes_on_as_before(costs, cut):
    def fresh() -> Allowance:
        return Allowance(Budget(0.7, per="time", seconds=30.0), 0.7, iterations=60, hard=True)

    whole, other = fresh(), fresh()
    for t, wanted in enumerate(costs):
        whole.open(t, 3.0 * t)
        spend_within(whole, wanted)
        if t == cut:
            other.restore(whole.state())
        elif t > cut:
            other.open(t, 3.0 * t)
            spend_within(other, wanted)
    if cut < len(costs):
        for name, value in whole.state().items():
            np.testing.assert_array_equal(value, other.state()[name])


def test_a_memory_of_another_shape_is_refused():
    own = Allowance(Budget(1.0), np.ones(3), iterations=5)
    with pytest.raises(ValueError, match="spent must have 3 numbers, got 2"):
        own.restore({"spent": np.zeros(2), "total": np.zeros(2)})
