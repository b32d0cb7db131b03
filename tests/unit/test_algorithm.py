"""The pure steps of Algorithm 1, for one client and for many; and the oracle's lines on a case by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.algorithm import accumulate, change_factor, equal_weights, reference
from flexfl.compress import TopK
from flexfl.control import Full, Setup, TopKRatio
from flexfl.costs import ConstantCompute, ConstantMessage
from flexfl.streams import Streams


def test_accumulate_is_line_6():
    e, g = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 20.0], [30.0, 40.0]])
    factor, step = change_factor(np.array([0.5, 0.5]), np.array([True, False])), -0.1 * g
    assert factor.tolist() == [2.0, 0.0]
    assert accumulate(e, step, factor).tolist() == [[-1.0, -2.0], [3.0, 4.0]]
    assert accumulate(e[0], step[0], factor[0]).tolist() == [-1.0, -2.0]


def test_weights():
    assert equal_weights(3).sum() == pytest.approx(1.0)


def setup(policy):
    costs = {"compute": ConstantCompute(), "uplink": ConstantMessage(), "downlink": ConstantMessage()}
    return Setup(policy, costs, {"uplink": TopK(), "downlink": TopK()}, {}, Streams(1))


def run(policy, iterations, weights=None):
    """Two clients whose gradients never change: (4, 1, 0, 0) and (0, 1, 2, 0); η = 1."""
    grads = np.array([[4.0, 1.0, 0.0, 0.0], [0.0, 1.0, 2.0, 0.0]])
    steps = reference(
        np.zeros(4),
        lambda n, x, used: grads[n],
        clients=2,
        setup=setup(policy),
        learning_rate=1.0,
        iterations=iterations,
        weights=weights,
    )
    return list(steps)


def test_everything_sent_is_plain_sgd():
    last = run(Full(), 3)[-1]
    assert last.params.tolist() == [-6.0, -3.0, -3.0, 0.0]
    assert not last.client_residual.any()
    assert not last.server_residual.any()


def test_what_is_not_sent_stays_and_is_sent_later():
    """k = 1 up and down: lines 7, 10, 11 and 14 by hand."""
    first, second = run(TopKRatio(0.25), 2)
    assert first.client_residual.tolist() == [[0, -1, 0, 0], [0, -1, 0, 0]]
    assert first.params.tolist() == [-2.0, 0, 0, 0]  # ½·(−4), the larger of a = (−2, 0, −1, 0)
    assert first.server_residual.tolist() == [0, 0, -1.0, 0]
    # b = (−4, −2, 0, 0) and (0, −2, −2, 0): among equals the lowest index goes.
    assert second.client_residual.tolist() == [[0, -2.0, 0, 0], [0, 0, -2.0, 0]]
    # a = (−2, −1, −1, 0), of which the first goes.
    assert second.params.tolist() == [-4.0, 0, 0, 0]
    assert second.server_residual.tolist() == [0, -1.0, -1.0, 0]


def test_weights_count_in_line_10():
    last = run(Full(), 1, weights=[0.75, 0.25])[-1]
    assert last.params.tolist() == [-3.0, -1.0, -0.5, 0.0]
