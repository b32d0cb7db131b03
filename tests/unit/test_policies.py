"""Policies made by hand: budgets that are left out, and what each baseline decides."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.compress import PlainVectors, TopK
from flexfl.control import Budget, FixedProb, Full, Online, Periodic, Randomised, Scope, TopKRatio
from flexfl.control.adaptive_bits import AdaptiveBits, bits_at
from flexfl.control.adaptive_k import AdaptiveK
from flexfl.control.baselines import FixedCompute, SendAll
from flexfl.control.online import OnlineCompute, OnlineSend
from flexfl.costs import Affine, Linear, UniformCompute
from flexfl.streams import Entities, Streams

STREAMS, EVERYONE = Streams(3), Entities.all_clients(3)
B = np.array([[3.0, 0.0, -1.0, 0.5], [0.1, 0.0, 0.0, 0.0], [-2.0, 2.0, 2.0, 2.0]])


def scope(knob="uplink", budget=None, entities=EVERYONE, **more):
    return Scope(knob, entities, None if budget is None else Budget(budget), **more)


def moment(knob="uplink", iteration=3):
    return STREAMS.moment(knob, iteration, 4, EVERYONE)


def sent(policy, budget=None, iteration=3):
    view = PlainVectors(B, TopK(), moment(iteration=iteration))
    cost = Affine(np.asarray(0.1), np.asarray(0.1))
    return policy.send_rule(scope(budget=budget)).decide(cost, view, moment(iteration=iteration)).tolist()


def test_knobs_without_a_budget_are_left_alone():
    policy = Online(tradeoff={"uplink": 2.0})
    assert isinstance(policy.compute_rule(scope("compute")), FixedCompute)
    assert isinstance(policy.send_rule(scope("downlink")), SendAll)
    assert isinstance(policy.compute_rule(scope("compute", 0.1)), OnlineCompute)
    uplink = policy.send_rule(scope(budget=0.1))
    assert isinstance(uplink, OnlineSend)
    queue = uplink.queue
    assert (uplink.tradeoff, queue.length.tolist(), float(queue.floor)) == (2.0, [1.0] * 3, 0.001)
    assert policy.compute_rule(scope("compute", 0.1)).tradeoff == 0.02  # left out of the table: the default


def test_settings_by_client_reach_the_client_alone():
    policy = Online(tradeoff={"uplink": np.array([0.1, 0.2, 0.3])}, initial_queue=0.5)
    alone = policy.send_rule(scope(budget=np.array([1.0, 2.0, 3.0]), entities=Entities.one_client(2, 3)))
    assert (float(alone.tradeoff), float(alone.queue.budget), alone.queue.length.shape) == (0.3, 3.0, ())


def test_shared_budgets():
    shared = Scope("uplink", EVERYONE, Budget(np.array([0.6, 0.3]), np.array([0, 0, 1])))
    assert shared.limits.tolist() == [0.3, 0.3, 0.3]  # divided evenly where nothing couples the draws
    queue = shared.queue(initial=1.0)
    queue.charge(np.array([1.0, 1.0, 1.0]))
    assert queue.pressure.tolist() == [2.4, 2.4, 1.7]


def test_baselines_made_by_hand():
    nonzero, alpha = [3, 1, 4], Linear(np.asarray(0.5))
    assert sent(Full()) == nonzero
    assert Full().compute_rule(scope("compute")).decide(alpha, moment("compute")).tolist() == [1.0] * 3
    assert FixedProb(0.3).compute_rule(scope("compute")).decide(alpha, moment()).tolist() == [0.3] * 3
    assert sent(Periodic(4)) == nonzero
    assert sent(Periodic(3)) == [0, 0, 0]
    assert isinstance(Periodic(3).send_rule(scope("downlink")), SendAll)
    assert sent(TopKRatio(0.5)) == [2, 1, 2]
    assert sent(TopKRatio(1e-9)) == [1, 1, 1]


def test_randomised_spends_its_budget_in_expectation():
    policy = Randomised(0.5)
    all_sent = np.array([sent(policy, 0.1, t) for t in range(4000)])
    assert set(all_sent[:, 0]) == {0, 2}
    cost = Affine(np.asarray(0.1), np.asarray(0.1))
    assert np.mean(cost(all_sent), axis=0) == pytest.approx([0.1, 0.1, 0.1], rel=0.1)
    known = scope("compute", 0.25, mean_cost=UniformCompute().mean_cost)
    assert policy.compute_rule(known).decide(Linear(np.asarray(0.9)), moment()).tolist() == [0.5] * 3
    # Without a known mean the cost of the iteration itself takes its place.
    unknown = policy.compute_rule(scope("compute", 0.25))
    assert unknown.decide(Linear(np.asarray(0.5)), moment()).tolist() == [0.5] * 3
    assert sent(policy) == [2, 1, 2]


def test_adaptive_k_spends_what_it_has_saved_in_every_mth_iteration():
    rule = AdaptiveK(send_every=2).send_rule(scope(budget=0.15))
    cost = Affine(np.asarray(0.1), np.asarray([0.1, 0.1, 0.05]))
    spent = np.zeros(3)
    for iteration, wanted in enumerate([[0, 0, 0], [2, 1, 4], [0, 0, 0], [2, 1, 4]]):
        view = PlainVectors(B, TopK(), moment(iteration=iteration))
        amounts = rule.decide(cost, view, moment(iteration=iteration))
        assert amounts.tolist() == wanted
        paid = cost(amounts)
        rule.charge(paid)
        spent += paid
        assert (spent <= 0.15 * (iteration + 1) + 1e-12).all()


def test_adaptive_bits_send_messages_that_grow():
    assert [bits_at(2.0, 8.0, t, 5) for t in (0, 4, 9)] == [2.0, 8.0, 8.0]
    rng = np.random.default_rng(1)
    vectors, dim, now = rng.standard_normal((3, 400)), 400, Streams(1)
    rule = AdaptiveBits(first_bits=2.0, last_bits=16.0).send_rule(scope(budget=1e6, iterations=9))
    sizes = []
    for iteration in range(9):
        then = now.moment("uplink", iteration, dim, EVERYONE)
        view = PlainVectors(vectors, TopK(), then, counts="bytes")
        amounts = rule.decide(Affine(np.zeros(3), np.ones(3)), view, then)
        nbytes, most = view.nbytes(amounts), bits_at(2.0, 16.0, iteration, 9) * dim / 8 + 64
        assert (nbytes <= most).all()
        assert (view.nbytes(amounts + 1) > most).all()  # the largest that fits
        sizes.append(int(nbytes[0]))
        rule.charge(nbytes)
    assert sizes == sorted(sizes)
    assert sizes[-1] > 3 * sizes[0]
