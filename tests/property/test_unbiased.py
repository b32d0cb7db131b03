"""E[𝟙/q] = 1: dividing a client's change by q keeps the update unbiased."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfl.algorithm import change_factor
from flexfl.control import FixedProb, Knob, Scope
from flexfl.costs import ConstantCompute
from flexfl.streams import Entities, Streams

SAMPLES = 20_000


def knob(q, seed):
    everyone = Entities.all_clients(SAMPLES)
    rule = FixedProb(q).compute_rule(Scope("compute", everyone))
    return Knob("compute", ConstantCompute(), rule, everyone, Streams(seed), 3)


@given(st.floats(0.01, 1.0), st.integers(0, 2**32))
def test_the_change_is_unbiased_within_sampling_error(q, seed):
    computing = knob(q, seed).decide(0)
    factors = change_factor(computing.prob, computing.computed)
    deviation = np.sqrt((1 / q - 1) / SAMPLES)
    assert abs(factors.mean() - 1.0) <= 6 * deviation + 1e-11
    assert np.array_equal(computing.charged, np.full(SAMPLES, q))  # the expected cost
    assert np.array_equal(computing.spent, computing.computed.astype(float))  # what it really was


def test_certainty_always_computes():
    assert knob(1.0, 3).decide(0).computed.all()
