"""x + r + Σ w·e moves only by the applied gradients, over whole runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flexfl.sim.gradients.pieces import Dense
from small import BUDGETS, COSTS, POLICIES, small_engine, small_reference, small_spec

WEIGHTS = ["equal", "samples", [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]]


@settings(max_examples=40)
@given(
    st.sampled_from(list(POLICIES)),
    st.sampled_from(list(COSTS)),
    st.sampled_from(list(BUDGETS)),
    st.sampled_from(WEIGHTS),
    st.integers(0, 1000),
)
def test_over_whole_runs(policy, costs, budget, weights, seed):
    # A queue that is shared has one W: that combination is refused, with an error of its own.
    assume(not ("W by" in policy and budget == "shared"))
    spec = small_spec(POLICIES[policy], COSTS[costs], BUDGETS[budget], seed=seed)
    engine = small_engine(spec, weights)
    expected = engine.conserved()
    for step in small_reference(spec, 20, weights):
        engine.step()
        expected = expected + step.applied
        np.testing.assert_allclose(engine.conserved(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("policy", ["online", "periodic", "top-k"])
def test_messages_are_not_a_way_to_leak(policy):
    """Without new gradients nothing may move at all: residuals only change places."""
    spec = small_spec(POLICIES[policy], {}, BUDGETS["all"])
    engine = small_engine(spec)
    for _ in range(5):
        engine.step()
    before = engine.conserved()
    gradients = engine.gradients

    def silent(x, y):
        pieces, loss = gradients(x, y)
        return {name: Dense(0 * piece.dense(slice(None))) for name, piece in pieces.items()}, loss

    engine.gradients, engine.recheck = silent, None  # which would notice that these are not the gradients
    for _ in range(20):
        engine.step()
    np.testing.assert_allclose(engine.conserved(), before, rtol=0, atol=1e-12)
