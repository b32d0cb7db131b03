"""Simulations with a clock: the engine equals the oracle, nothing is lost, budgets by the clock are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from small import BUDGETS, CLIENTS, COSTS, POLICIES, small_engine, small_reference, small_spec

ITERATIONS = 40
SECONDS = {
    "compute": {"kind": "uniform", "high": 2.0, "unit": "second"},
    "uplink": {"kind": "fading", "factor": 0.5, "unit": "second"},
    "downlink": {"kind": "constant", "whole_model": 0.1, "unit": "second"},
}


class ComesAndGoes:
    """Seconds of computing; a client is away in every third iteration, each at another time."""

    unit = "second"

    def at(self, moment):
        away = (moment.iteration + moment.entities.numbers) % 3 == 0
        return lambda amount: np.where(away, np.inf, 1.0 + moment.entities.numbers) * np.asarray(amount)


CLOCKS = {
    "fixed": {"iteration": "30 s"},
    "the costs": {"overhead": "50 ms"},
    "own models": {
        "compute": {"kind": "uniform", "high": 2.0},
        "uplink": "20 kbit/s",
        "downlink": "1 Mbit/s",
    },
    "a deadline": {"compute": {"kind": "uniform", "high": 2.0}, "uplink": "2 kbit/s", "deadline": "1.2 s"},
    "a slow client": {
        "compute": {"kind": "constant", "per_gradient": [0.1] * (CLIENTS - 1) + [7.0]},
        "deadline": "1 s",
    },
    "come and go": {"compute": {"kind": "test_clock:ComesAndGoes"}, "deadline": "4 s"},
}
RATES = {"compute": "30 s / min", "uplink": "2 s / min", "downlink": "1 s / min"}
CASES = [
    (clock, policy, budget) for clock in CLOCKS for policy, budget in [("online", "all"), ("full", "none")]
]
CASES += [(clock, "price", budget) for clock in CLOCKS for budget in ("all", "shared", "rates")]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])


def spec_of(clock, policy, budget, **more):
    limits = RATES if budget == "rates" else BUDGETS[budget]
    return small_spec(POLICIES[policy], SECONDS, limits, clock=CLOCKS[clock], iterations=ITERATIONS, **more)


@pytest.mark.parametrize(("clock", "policy", "budget"), CASES)
def test_the_engine_equals_the_oracle(clock, policy, budget):
    spec = spec_of(clock, policy, budget)
    kernels = "torch" if clock == "a deadline" else None
    engine = small_engine(spec, kernels=kernels)
    start, applied, late, before = engine.conserved(), np.zeros(engine.dim), 0, 0.0
    for step in small_reference(spec, ITERATIONS):
        record = engine.step()
        applied += step.applied
        assert np.array_equal(record["computed"], step.compute.computed)
        assert np.array_equal(record["uplink_components"], step.uplink.components)
        assert record["clock"] == pytest.approx(step.clock, rel=1e-12)
        assert record["clock"] > before
        before = record["clock"]
        np.testing.assert_allclose(engine.params, step.params, rtol=0, atol=1e-10)
        np.testing.assert_allclose(engine.client_residual, step.client_residual, rtol=0, atol=1e-10)
        whole = step.params + step.server_residual + step.client_residual.mean(axis=0) + step.in_flight
        np.testing.assert_allclose(whole, start + applied, rtol=0, atol=1e-10)
        np.testing.assert_allclose(engine.conserved(), start + applied, rtol=0, atol=1e-10)
        late += bool(np.abs(step.in_flight).max() > 0)
    with_late = clock in ("a deadline", "a slow client", "come and go")
    assert late > 0 if with_late and policy == "full" else with_late or not late


def test_a_slow_client_costs_one_deadline_and_its_messages_still_count():
    clock = CLOCKS["a slow client"]
    engine = small_engine(small_spec(POLICIES["full"], COSTS["constant"], {}, clock=clock))
    records = [engine.step() for _ in range(120)]
    ends = np.array([record["clock"] for record in records])
    took = np.diff(ends, prepend=0.0)
    assert took[0] == pytest.approx(0.05 + 1.0)
    assert took[1:] == pytest.approx(0.05 + 0.1)
    by_slow = [t for t, record in enumerate(records) if record["computed"][-1]]
    starts = np.concatenate([[0.0], ends])[by_slow]
    assert len(by_slow) > 2
    assert ((np.diff(starts) >= 7.05) & (np.diff(starts) < 7.05 + 0.15 + 1e-9)).all()


def test_who_is_away_neither_computes_nor_sends_nor_pays():
    engine = small_engine(spec_of("come and go", "full", "none"))
    for t in range(12):
        record = engine.step()
        away = (t + np.arange(CLIENTS)) % 3 == 0
        assert not record["computed"][away].any()
        assert not record["uplink_components"][away].any()
        assert not record["compute_spent"][away].any()
    assert record["clock"] > 0


def test_draws_of_the_clock_are_its_own():
    """With times of its own, costs and who computes are as in a run without a clock."""
    with_clock = small_engine(spec_of("own models", "online", "all"))
    without = small_engine(small_spec(POLICIES["online"], SECONDS, BUDGETS["all"], iterations=ITERATIONS))
    for _ in range(20):
        mine, other = with_clock.step(), without.step()
        assert math.isnan(other.pop("clock"))
        assert mine.pop("clock") > 0
        for name, values in other.items():
            assert np.array_equal(mine[name], values, equal_nan=True), name


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_run_is_resumed_bit_for_bit(clock):
    spec = spec_of(clock, "price", "rates", dtype="float32")
    engine = small_engine(spec)
    for _ in range(17):
        engine.step()
    again = small_engine(spec)
    again.restore({name: array.copy() for name, array in engine.state().items()})
    for _ in range(17):
        mine, theirs = again.step(), engine.step()
        for name, values in theirs.items():
            assert np.array_equal(mine[name], values, equal_nan=True), name
    assert np.array_equal(again.conserved(), engine.conserved())


def test_a_state_without_a_clock_is_refused():
    with_clock = small_engine(spec_of("fixed", "online", "all"))
    without = small_engine(small_spec(POLICIES["online"], SECONDS, BUDGETS["all"]))
    with pytest.raises(ValueError, match=r"clock\.\w+ is missing"):
        with_clock.restore(without.state())


# Budgets by the clock --------------------------------------------------------------------------


def windows(spent, starts, seconds):
    """What was spent in each window of time, by the beginning of its iterations."""
    place = (starts // seconds).astype(int)
    total = np.zeros((place.max() + 1, *spent.shape[1:]))
    np.add.at(total, place, spent)
    return total


@settings(max_examples=12, deadline=None)
@given(
    alpha=st.floats(0.01, 3.0),
    per_message=st.floats(0.0, 1.0),
    whole_model=st.floats(0.1, 10.0),
    limit=st.floats(1.5, 30.0),
    window=st.sampled_from(["20 s", "1 min", "7 s"]),
    iteration=st.floats(0.3, 5.0),
    seed=st.integers(0, 99),
)
def test_no_window_ever_has_more_than_its_budget(
    alpha, per_message, whole_model, limit, window, iteration, seed
):
    message = {"kind": "constant", "per_message": per_message, "whole_model": whole_model, "unit": "second"}
    costs = {"compute": {"kind": "uniform", "high": alpha, "unit": "second"}, "uplink": message,
             "downlink": message}  # fmt: skip
    per = f"{limit} s / {window}".replace("/ 1 min", "/ min")
    budget = {"compute": per, "uplink": per, "downlink": per}
    spec = small_spec(
        POLICIES["price"], costs, budget, clock={"iteration": iteration}, iterations=40, seed=seed
    )
    engine = small_engine(spec)
    records = [engine.step() for _ in range(40)]
    starts = np.concatenate([[0.0], [record["clock"] for record in records[:-1]]])
    seconds = {"20 s": 20.0, "1 min": 60.0, "7 s": 7.0}[window]
    for name in ("compute_spent", "uplink_cost", "downlink_cost"):
        spent = windows(np.array([record[name] for record in records]), starts, seconds)
        assert (spent <= limit * (1 + 1e-9)).all(), name
    assert sum(record["compute_spent"].sum() for record in records) > 0


@settings(max_examples=15, deadline=None)
@given(
    pace=st.floats(0.5, 4.0),
    total=st.floats(1.0, 20.0),
    average=st.floats(0.05, 0.4),
    seed=st.integers(0, 99),
)
def test_a_run_that_ends_by_the_clock_keeps_its_total_and_its_average(pace, total, average, seed):
    budget = {"compute": f"{total} s", "uplink": average, "downlink": average}
    spec = small_spec(
        POLICIES["price"], SECONDS, budget, clock={"iteration": pace}, iterations=10_000, duration=100.0,
        seed=seed,
    )  # fmt: skip
    steps = list(small_reference(spec, 10_000))
    assert len(steps) == math.ceil(100.0 / pace - 1e-9)
    assert (sum(step.compute.spent for step in steps) <= total * (1 + 1e-9)).all()
    sent = np.cumsum([step.uplink.charged for step in steps], axis=0)
    done = np.arange(1, len(steps) + 1)[:, None]
    assert (sent <= average * done * (1 + 1e-9)).all()


def test_what_is_left_is_spent_by_the_end_of_the_duration():
    """Planned for T = 100,000 iterations, a run that ends after 200 would spend next to nothing."""
    spec = small_spec(
        POLICIES["price"], COSTS["constant"] | {"compute": SECONDS["compute"]}, {"compute": "40 s"},
        clock={"iteration": "3 s"}, iterations=100_000, duration="10 min",
    )  # fmt: skip
    steps = list(small_reference(spec, 100_000))
    assert len(steps) == 200
    spent = sum(step.compute.spent for step in steps)
    assert (spent <= 40.0).all()
    assert (spent >= 0.9 * 40.0).all()
