"""Policies made by hand: one client decides as a thousand do, and knobs can be left alone."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.compress import DenseMagnitudes
from flexfl.control import FixedCompute, OnlineCompute, OnlineSend, SendAll, VirtualQueue, baselines, online
from flexfl.costs import Affine, Linear, UniformCompute
from flexfl.streams import Streams

STREAMS = Streams(3)
B = np.array([[3.0, 0.0, -1.0, 0.5], [0.1, 0.0, 0.0, 0.0], [-2.0, 2.0, 2.0, 2.0]])


def test_one_client_decides_as_many_do():
    costs, alpha = Affine(np.array([0.1, 0.2, 0.05]), np.array([0.3, 0.1, 0.2])), np.array([0.3, 0.5, 0.9])
    many = online(compute=VirtualQueue([0.2] * 3, initial=1.0), uplink=VirtualQueue([0.1] * 3, initial=1.0))
    moment = STREAMS.moment("uplink", 0, 4, (3,))
    q = many.compute.decide(Linear(alpha), moment)
    k = many.uplink.decide(costs, DenseMagnitudes(B), moment)
    for n in range(3):
        one = online(compute=VirtualQueue(0.2, initial=1.0), uplink=VirtualQueue(0.1, initial=1.0))
        alone = STREAMS.moment("uplink", 0, 4)
        assert one.compute.decide(Linear(alpha[n]), alone) == q[n]
        cost = Affine(costs.per_message[n], costs.per_component[n])
        assert one.uplink.decide(cost, DenseMagnitudes(B[n]), alone) == k[n]


def test_knobs_without_a_queue_are_left_alone():
    policy = online(uplink=VirtualQueue([0.1] * 3), tradeoff={"compute": 1.0, "uplink": 2.0, "downlink": 3.0})
    assert isinstance(policy.compute, FixedCompute)
    assert isinstance(policy.uplink, OnlineSend)
    assert policy.uplink.tradeoff == 2.0
    assert isinstance(policy.downlink, SendAll)
    assert list(policy.queues) == ["uplink"]
    controlled = online(compute=VirtualQueue(1.0), downlink=VirtualQueue(1.0))
    assert isinstance(controlled.compute, OnlineCompute)
    assert list(controlled.queues) == ["compute", "downlink"]


def test_baselines_made_by_hand():
    moment, cost = STREAMS.moment("uplink", 3, 4, (3,)), Affine(np.asarray(0.1), np.asarray(0.1))
    view, alpha = DenseMagnitudes(B), Linear(np.asarray(0.5))
    nonzero = [3, 1, 4]
    assert baselines.full().uplink.decide(cost, view, moment).tolist() == nonzero
    assert baselines.full().compute.decide(alpha, moment).tolist() == [1.0] * 3
    assert baselines.fixed_prob(0.3).compute.decide(alpha, moment).tolist() == [0.3] * 3
    assert baselines.periodic(4).uplink.decide(cost, view, moment).tolist() == nonzero
    assert baselines.periodic(3).uplink.decide(cost, view, moment).tolist() == [0, 0, 0]
    assert baselines.top_k(0.5).uplink.decide(cost, view, moment).tolist() == [2, 1, 2]
    assert baselines.top_k(1e-9).uplink.decide(cost, view, moment).tolist() == [1, 1, 1]


def test_randomised_spends_its_budget_in_expectation():
    policy = baselines.randomised(ratio=0.5, compute=0.25, uplink=0.1, mean_cost=UniformCompute().mean_cost)
    cost, view = Affine(np.asarray(0.2), np.asarray(0.1)), DenseMagnitudes(B)
    sent = np.array(
        [policy.uplink.decide(cost, view, STREAMS.moment("uplink", t, 4, (3,))) for t in range(4000)]
    )
    assert set(sent[:, 0]) == {0, 2}
    assert np.mean(cost(sent), axis=0) == pytest.approx([0.1, 0.1, 0.1], rel=0.1)
    moment = STREAMS.moment("compute", 0, 4, (3,))
    assert policy.compute.decide(Linear(np.asarray(0.9)), moment).tolist() == [0.5] * 3
    # Without a known mean the cost of the iteration itself takes its place.
    unknown = baselines.randomised(ratio=0.5, compute=0.25)
    assert unknown.compute.decide(Linear(np.asarray(0.5)), moment).tolist() == [0.5] * 3
    assert unknown.downlink.decide(cost, view, moment).tolist() == [2, 1, 2]
