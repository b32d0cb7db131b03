"""Budgets that cannot be kept are told before the start: unit, clock, size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flexfl.clock import WallClock
from flexfl.compress import TopK
from flexfl.control import Budget, JointBudget, Online, Price, Setup
from flexfl.control.feasible import budget_faults, budget_notes, units_of
from flexfl.costs import ConstantCompute, ConstantMessage
from flexfl.streams import Streams

N, D, T = 3, 50, 20


def setup(policy=None, iterations=T, joint=None, clock=None, **budgets: Budget) -> Setup:
    more = {} if clock is None else {"clock": clock}
    return Setup(
        policy or Price(),
        {
            "compute": ConstantCompute(2.0, unit="second"),
            "uplink": ConstantMessage(per_message=30.0, whole_model=250.0, unit="byte"),  # 35 for one
            "downlink": ConstantMessage(per_message=1.0, whole_model=1.0),
        },
        {"uplink": TopK(), "downlink": TopK()},
        budgets,
        Streams(1),
        iterations,
        joint=joint or {},
        **more,
    )


def faults(made: Setup) -> list[str]:
    return [str(fault) for fault in budget_faults(made, N, D)]


def test_units_of_costs():
    assert units_of(setup()) == {"compute": "second", "uplink": "byte"}


def test_a_budget_of_another_unit_is_refused_with_the_remedy():
    [found] = faults(setup(uplink=Budget(5e3, per="run", unit="joule")))
    assert "budget.uplink must be in bytes, as costs.uplink is (ConstantMessage), got 'joule'" in found
    assert "choose a cost in joules for costs.uplink" in found
    [found] = faults(setup(downlink=Budget(5e3, per="run", unit="byte")))
    assert "must be a plain number, since costs.downlink has no unit" in found
    assert not faults(setup(uplink=Budget(500.0)))  # a number is in the cost's unit


def test_a_joint_budget_has_the_unit_of_its_costs():
    battery = {"uplink": ConstantMessage(unit="joule"), "compute": 2.0}
    joint = JointBudget(np.full(N, 10.0), battery, np.arange(N), per="run", unit="byte")
    [found] = faults(setup(joint={"battery": joint}))
    assert "budget.battery must be in joules, as budget.battery.uplink is" in found


def test_a_budget_for_a_time_needs_a_clock_and_a_policy_that_goes_by_it():
    monthly = Budget(5e4, per="time", seconds=3600.0, unit="byte")
    [found] = faults(setup(uplink=monthly))
    assert "needs a clock" in found
    assert "[clock]" in found
    [found] = faults(setup(Online(), clock=WallClock(), uplink=monthly))
    assert 'set control.policy = "price"' in found
    assert not faults(setup(clock=WallClock(), uplink=monthly))


@pytest.mark.parametrize(
    ("budget", "smallest"),
    [
        (Budget(34.0, per="run", unit="byte"), "35 B"),
        (Budget(34.0 / T, hard=True, unit="byte"), "1.75 B / iteration"),
        (Budget(np.array([500.0, 20.0, 500.0]), per="run", unit="byte"), "35 B"),
        (Budget(np.array([100.0]), np.zeros(N, dtype=int), per="run", unit="byte"), "105 B"),
    ],
    ids=["total", "average", "one client", "shared"],
)
def test_a_budget_below_one_message_is_told_with_the_smallest_that_would_do(budget, smallest):
    [found] = faults(setup(uplink=budget))
    assert "budget.uplink must allow for one message of client" in found
    assert "costs at least 35 B" in found
    assert f"the smallest that would do is {smallest}" in found


def test_the_smallest_that_would_do_does():
    assert not faults(setup(uplink=Budget(35.0, per="run", unit="byte")))
    assert faults(setup(compute=Budget(1.9, per="run", unit="second")))
    assert not faults(setup(compute=Budget(2.0, per="run", unit="second")))


def test_an_average_in_a_short_run_is_a_note():
    short = setup(iterations=2, uplink=Budget(10.0))
    assert not faults(short)
    [note] = budget_notes(short, N, D)
    assert "budget.uplink must allow for one message" in note
    assert not budget_notes(setup(uplink=Budget(10.0)), N, D)
    assert not budget_notes(
        setup(Online(), iterations=2, uplink=Budget(10.0)), N, D
    )  # its queue may exceed it


def test_the_clock_of_the_wall_outlives_processes_and_never_runs_back():
    now = {"monotonic": 100.0, "wall": 5e8}
    clock = WallClock(lambda: now["monotonic"], lambda: now["wall"])
    now["monotonic"] += 7.0
    now["wall"] -= 1e6  # somebody sets the clock
    assert clock.seconds == pytest.approx(7.0)
    kept = clock.state()
    now |= {"monotonic": 3.0, "wall": now["wall"] + 60.0}  # another process, a minute later
    other = WallClock(lambda: now["monotonic"], lambda: now["wall"])
    other.restore(kept)
    assert other.seconds == pytest.approx(67.0)
    now["wall"] -= 1e5
    third = WallClock(lambda: now["monotonic"], lambda: now["wall"])
    third.restore(kept)
    assert third.seconds == pytest.approx(7.0)
    assert not math.isnan(third.seconds)
