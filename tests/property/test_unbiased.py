"""E[𝟙/q] = 1: dividing the learning rate by q keeps the update unbiased."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfl.algorithm import step_size
from flexfl.control import FixedProb, Knob, Scope
from flexfl.costs import ConstantCompute
from flexfl.streams import Entities, Streams

SAMPLES = 20_000


def knob(q, seed):
    everyone = Entities.all_clients(SAMPLES)
    rule = FixedProb(q).compute_rule(Scope("compute", everyone))
    return Knob("compute", ConstantCompute(), rule, everyone, Streams(seed), 3)


@given(st.floats(0.01, 1.0), st.integers(0, 2**32))
def test_the_step_is_unbiased_within_sampling_error(q, seed):
    computing = knob(q, seed).decide(0)
    steps = step_size(0.1, computing.prob, computing.computed)
    deviation = 0.1 * np.sqrt((1 / q - 1) / SAMPLES)
    assert abs(steps.mean() + 0.1) <= 6 * deviation + 1e-12
    assert np.array_equal(computing.charged, np.full(SAMPLES, q))  # the expected cost
    assert np.array_equal(computing.spent, computing.computed.astype(float))  # what it really was


def test_certainty_always_computes():
    assert knob(1.0, 3).decide(0).computed.all()
