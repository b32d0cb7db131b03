"""E[𝟙/q] = 1: dividing the learning rate by q keeps the update unbiased."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfl.algorithm import client
from flexfl.streams import Streams


@given(st.floats(0.01, 1.0), st.integers(0, 2**32))
def test_the_step_is_unbiased_within_sampling_error(q, seed):
    samples = 20_000
    uniform = Streams(seed).uniform("compute/bernoulli", 0, (samples,))
    computed = client.computes(q, uniform)
    steps = client.step_size(0.1, q, computed)
    deviation = 0.1 * np.sqrt((1 / q - 1) / samples)
    assert abs(steps.mean() + 0.1) <= 6 * deviation + 1e-12


def test_certainty_always_computes():
    assert np.all(client.computes(1.0, np.array([1e-16, 0.5, 1 - 1e-16])))
