"""Baselines keep their budgets: on average, or at any time; and who is sampled computes and sends at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfl.compress import PlainVectors, RoundedTopK, TopK
from flexfl.control import AdaptiveBits, AdaptiveK, Budget, Paced, Policy, Sampled, Setup
from flexfl.control.affordable import largest_within
from flexfl.costs import ConstantCompute, ConstantMessage, FadingChannel, UniformCompute
from flexfl.costs.packets import PacketMessage
from flexfl.streams import Entities, Streams

CLIENTS, DIM = 5, 40
SERVER = Entities.the_server()
EVERYONE = Entities.all_clients(CLIENTS)


def setup(policy: Policy, uplink: Any, budget: dict[str, float], seed: int = 1) -> Setup:
    costs = {"compute": UniformCompute(), "uplink": uplink, "downlink": uplink}
    budgets = {knob: Budget(limit) for knob, limit in budget.items()}
    compressors = dict.fromkeys(("uplink", "downlink"), TopK())
    return Setup(policy, costs, compressors, budgets, Streams(seed), 2000)


def decided(made: Setup, iterations: int) -> dict[str, np.ndarray]:
    """Who computes, who sends, what that costs the clients, and the server; (T, ...)."""
    knob, up = made.knob(EVERYONE, DIM), made.sender("uplink", EVERYONE, DIM)
    down = made.sender("downlink", SERVER, DIM)
    rng, rows = np.random.default_rng(0), []
    for t in range(iterations):
        b = rng.normal(size=(CLIENTS, DIM))
        computing, sending, server = knob.decide(t), up.send(t, b)[2], down.send(t, b[0])[2]
        rows.append(
            (computing.computed, sending.components > 0, computing.spent, sending.charged, server.charged)
        )
    names = ("computed", "sent", "compute", "uplink", "downlink")
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


@settings(max_examples=15, deadline=None)
@given(
    policy=st.one_of(
        st.builds(Paced, send_ratio=st.floats(0.02, 1.0)),
        st.builds(AdaptiveK, send_every=st.integers(1, 12)),
        st.builds(AdaptiveBits, first_bits=st.floats(1.0, 8.0), last_bits=st.floats(8.0, 64.0)),
    ),
    uplink=st.sampled_from(
        [FadingChannel(), ConstantMessage(0.02, 0.5), PacketMessage(per_packet=0.02, components_per_packet=7)]
    ),
    limit=st.floats(0.005, 0.5),
)
def test_who_saves_up_never_exceeds_a_budget_at_any_time(policy: Policy, uplink: Any, limit: float) -> None:
    found = decided(setup(policy, uplink, {"compute": 0.25, "uplink": limit, "downlink": limit}), 60)
    allowed = limit * np.arange(1, 61) * (1 + 1e-9)
    assert (np.cumsum(found["uplink"], axis=0) <= allowed[:, None]).all()
    assert (np.cumsum(found["downlink"]) <= allowed).all()


@pytest.mark.parametrize("policy", [Paced(send_ratio=0.25), AdaptiveK(send_every=8), AdaptiveBits(4.0, 16.0)])
def test_what_is_saved_is_used(policy: Policy) -> None:
    found = decided(setup(policy, FadingChannel(), {"compute": 0.25, "uplink": 0.05, "downlink": 0.05}), 1000)
    assert found["uplink"].mean() == pytest.approx(0.05, rel=0.05)
    assert found["downlink"].mean() == pytest.approx(0.05, rel=0.05)
    assert found["compute"].mean() == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("participation", [0.05, 0.5])
def test_sampling_keeps_budgets_on_average(participation: float) -> None:
    budget = {"compute": 0.1, "uplink": 0.05, "downlink": 0.05}
    found = decided(setup(Sampled(participation, 0.5), FadingChannel(), budget), 3000)
    prob = min(participation, 0.1 / 0.5)
    assert found["computed"].mean() == pytest.approx(prob, rel=0.1)
    assert found["compute"].mean() <= 0.1 * 1.1
    assert found["uplink"].mean() <= 0.05 * 1.1
    assert found["downlink"].mean() <= 0.05 * 1.15
    assert not (found["sent"] & ~found["computed"]).any()


def test_who_is_sampled_computes_and_sends_at_once() -> None:
    budget = {"compute": 0.5, "uplink": 0.2, "downlink": 0.05}
    made = setup(Sampled(0.3), ConstantMessage(0.02, 0.5), budget)
    found = decided(made, 400)
    np.testing.assert_array_equal(found["computed"], found["sent"])  # 0.3 · 0.52 is within the budget
    assert found["uplink"].mean() == pytest.approx(0.3 * 0.52, rel=0.1)


def test_without_a_known_cost_or_budget_participation_decides() -> None:
    made = setup(Sampled([0.1, 0.2, 0.3, 0.4, 1.0]), ConstantMessage(0.02, 0.5), {})
    assert made.knob(EVERYONE, DIM).decide(0).prob.tolist() == [0.1, 0.2, 0.3, 0.4, 1.0]
    found = decided(made, 50)
    np.testing.assert_array_equal(found["computed"], found["sent"])
    assert found["sent"][:, 4].all()
    costs = made.costs | {"compute": ConstantCompute(2.0)}
    limited = Setup(made.policy, costs, made.compressors, {"compute": Budget(0.4)}, Streams(1), 10)
    assert limited.knob(EVERYONE, DIM).decide(0).prob.tolist() == [0.1, 0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize("compressor", [TopK(), RoundedTopK()])
@pytest.mark.parametrize("uplink", [FadingChannel(), PacketMessage(per_packet=0.02, components_per_packet=7)])
def test_the_largest_amount_within_a_limit_is_that_of_trying_all(compressor: Any, uplink: Any) -> None:
    for t in range(20):
        moment = Streams(3).moment("uplink", t, DIM, EVERYONE)
        cost, limits = uplink.at(moment), np.array([0.0, 0.01, 0.08, 0.4, np.inf])
        vectors = PlainVectors(np.random.default_rng(t).normal(size=(CLIENTS, DIM)), compressor, moment)
        found = largest_within(cost, vectors, limits, DIM)
        tried = np.arange(DIM + 1)[:, None] * np.ones(CLIENTS, dtype=np.int64)
        best = np.max(np.where(cost(tried) <= limits, tried, 0), axis=0)
        np.testing.assert_array_equal(found, best)
