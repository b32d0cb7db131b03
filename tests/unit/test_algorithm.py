"""The pure steps of Algorithm 1, for one client and for many."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.algorithm import client, server


def test_accumulate_is_line_6():
    e, g = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 20.0], [30.0, 40.0]])
    step = client.step_size(0.1, np.array([0.5, 0.5]), np.array([True, False]))
    assert step.tolist() == [-0.2, 0.0]
    assert client.accumulate(e, g, step).tolist() == [[-1.0, -2.0], [3.0, 4.0]]
    one = client.accumulate(e[0], g[0], step[0])
    assert one.tolist() == [-1.0, -2.0]


def test_aggregate_is_the_mean_over_all_clients_the_silent_ones_too():
    r = np.array([1.0, 1.0])
    messages = np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 6.0]])
    weights = server.equal_weights(3)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(server.aggregate(r, messages, weights), [2.0, 3.0])
    np.testing.assert_allclose(server.aggregate(r, messages, [0.5, 0.25, 0.25]), [2.5, 2.5])


def test_update_and_what_is_kept():
    a, u = np.array([1.0, -2.0, 3.0]), np.array([0.0, -2.0, 0.0])
    assert server.keep(a, u).tolist() == [1.0, 0.0, 3.0]
    assert server.update(np.ones(3), u).tolist() == [1.0, -1.0, 1.0]
