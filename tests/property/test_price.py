"""The price: what it must do, for any costs; and the decisions made at it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from flexfl.compress import TopK
from flexfl.compress.plain import PlainVectors
from flexfl.control import Budget, Price, Setup
from flexfl.control.allowance import Allowance
from flexfl.control.price import LogPrice, best_ratio, next_price
from flexfl.costs import Affine, ConstantCompute, ConstantMessage, PacketMessage, Staircase, UniformCompute
from flexfl.streams import Entities, Streams

D, T = 12, 60
VECTORS = arrays.arrays(np.float64, (3, D), elements=st.floats(-10, 10).map(lambda value: round(value, 3)))
RATES = st.floats(0.0, 5.0)


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=100), st.floats(0.1, 10.0), st.floats(0.001, 1.0))
def test_the_violation_telescopes(costs, budget, step):
    """Theorem (docs/concepts/guarantees.md): mean(φ)/φ̃ − 1 = ln(λ_T/λ_0) / (κT), sign included."""
    log = 0.3
    for cost in costs:
        log = float(next_price(log, cost, budget, budget, step))
    violation = np.mean(costs) / budget - 1
    assert (log - 0.3) / (step * len(costs)) == pytest.approx(
        violation, abs=1e-9 * max(1, max(costs) / budget)
    )


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=100))
def test_with_its_floor_a_price_bounds_the_violation(costs):
    own = Allowance(Budget(1.0), np.asarray(1.0), iterations=len(costs))
    price = LogPrice(own, 0.5)
    for t, cost in enumerate(costs):
        own.open(t)
        if t == 0:
            price.begin(np.asarray(2.0))
        price.charge(cost)
    bound = (float(price.log) - np.log(2.0)) / (0.5 * len(costs))
    assert np.mean(costs) - 1 <= bound + 1e-9


@settings(max_examples=200)
@given(VECTORS, RATES, st.floats(0.0, 2.0))
def test_the_first_price_is_the_most_that_a_unit_of_cost_can_bring(b, beta, gamma):
    if beta == gamma == 0:
        return
    cost = Affine(np.asarray(beta), np.asarray(gamma))
    moment = Streams(1).moment("uplink", 0, D, Entities.all_clients(3))
    energy = np.square(b).sum(axis=1)
    found, spent = best_ratio(cost, PlainVectors(b, TopK(), moment), energy > 0)
    squares = np.sort(np.square(b), axis=1)[:, ::-1]
    for row in range(3):
        k = np.arange(1, np.count_nonzero(b[row]) + 1)
        if not len(k):
            assert found[row] == 0
            continue
        ratios = np.cumsum(squares[row])[: len(k)] / (beta + gamma * k)
        assert found[row] == pytest.approx(ratios.max(), rel=1e-9)
        assert spent[row] in (beta + gamma * k)


@given(VECTORS)
def test_the_first_price_for_a_staircase_is_found_by_trying_all(b):
    cost = Staircase(np.array([0.1, 0.2, 0.3]), np.array([3.0, 5.0, 7.0]))
    moment = Streams(1).moment("uplink", 0, D, Entities.all_clients(3))
    found, _ = best_ratio(cost, PlainVectors(b, TopK(), moment), np.square(b).sum(axis=1) > 0)
    squares = np.sort(np.square(b), axis=1)[:, ::-1]
    for row in range(3):
        k = np.arange(1, D + 1)
        price = cost(np.broadcast_to(k[:, None], (D, 3)))[:, row]
        assert found[row] == pytest.approx((np.cumsum(squares[row]) / price).max(), rel=1e-9)


def senders(scale: float = 1.0, hard: bool | None = None, limit: float = 0.3, iterations: int = T) -> Setup:
    return Setup(
        Price(),
        {
            "compute": UniformCompute(high=scale),
            "uplink": ConstantMessage(per_message=0.5 * scale, whole_model=2.0 * scale),
            "downlink": ConstantMessage(per_message=0.5 * scale, whole_model=2.0 * scale),
        },
        {"uplink": TopK(), "downlink": TopK()},
        {
            "compute": Budget(0.25 * scale, hard=hard),
            "uplink": Budget(limit * scale, hard=hard),
            "downlink": Budget(limit * scale, hard=hard),
        },
        Streams(5),
        iterations,
    )


def decisions(setup: Setup, vectors: np.ndarray, clients: int = 3) -> tuple[np.ndarray, ...]:
    who = Entities.all_clients(clients)
    knob, sender = setup.knob(who, D), setup.sender("uplink", who, D)
    e = np.zeros((clients, D))
    probs, sent, spent, computed = [], [], [], []
    for t in range(setup.iterations):
        computing = knob.decide(t)
        _, e, sending = sender.send(t, e + vectors[t])
        probs.append(computing.prob)
        computed.append(computing.spent)
        sent.append(sending.components)
        spent.append(sending.charged)
    return tuple(np.array(found) for found in (probs, computed, sent, spent))


def normal(seed: int, iterations: int = T, clients: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(iterations, clients, D))


@pytest.mark.parametrize("scale", [1e-3, 1e3, 2.0**20])
def test_no_unit_matters(scale):
    """Costs and budgets in other units: the same decisions, to rounding."""
    vectors = normal(1)
    probs, computed, sent, spent = decisions(senders(), vectors)
    others = decisions(senders(scale), vectors)
    np.testing.assert_allclose(others[0], probs, rtol=1e-9)
    np.testing.assert_array_equal(others[2], sent)
    np.testing.assert_allclose(others[1], computed * scale, rtol=1e-9)
    np.testing.assert_allclose(others[3], spent * scale, rtol=1e-9)
    assert 0 < sent.sum() < sent.size * D  # there was something to decide


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 1.0))
def test_a_hard_budget_is_never_exceeded_and_spent(seed, limit):
    _, computed, _, spent = decisions(senders(limit=limit), normal(seed))
    assert (spent.cumsum(axis=0) <= limit * T * (1 + 1e-9)).all()
    assert (computed.cumsum(axis=0) <= 0.25 * T * (1 + 1e-9)).all()
    dearest = 0.5 + 2.0  # one message; sending all in every iteration would cost 2.5·T
    assert (spent.sum(axis=0) >= 0.9 * limit * T - dearest).all()
    assert (computed.sum(axis=0) >= 0.9 * 0.25 * T - 1.0).all()


def test_an_average_may_be_exceeded_for_a_while():
    vectors = normal(3) * np.linspace(20, 0.1, T)[:, None, None]
    _, _, _, spent = decisions(senders(hard=False), vectors)
    _, _, _, kept = decisions(senders(), vectors)
    assert spent.sum() > 0
    assert (kept.sum(axis=0) <= 0.3 * T * (1 + 1e-9)).all()


@settings(max_examples=150, deadline=None)
@given(VECTORS, st.floats(0.0, 3.0), st.floats(1e-3, 100.0), st.sampled_from(["affine", "staircase"]))
def test_with_little_left_the_best_of_what_can_be_paid_is_sent(b, left, price, kind):
    """Brute force over every k whose cost is within what is left."""
    cost = {
        "affine": ConstantMessage(per_message=0.5, whole_model=2.0),
        "staircase": PacketMessage(per_packet=0.4, components_per_packet=5),
    }[kind]
    setup = senders(limit=1.0, iterations=4)
    setup = Setup(Price(), {"uplink": cost}, setup.compressors, setup.budgets, setup.streams, 4)
    sender = setup.sender("uplink", Entities.all_clients(3), D)
    sender.rule.queue.restore({"log": np.full(3, np.log(price)), "least": np.full(3, -50.0)})
    sender.allowance.spend(np.full(3, 4.0 - left))
    _, kept, sending = sender.send(0, b)
    squares = np.sort(np.square(b), axis=1)[:, ::-1]
    charge = cost.at(Streams(5).moment("uplink", 0, D, Entities.all_clients(1)))
    for row in range(3):
        fits = [k for k in range(np.count_nonzero(b[row]) + 1) if float(charge(np.array([k]))[0]) <= left]
        value = {k: squares[row, k:].sum() + price * float(charge(np.array([k]))[0]) for k in fits}
        assert value[int(sending.components[row])] == pytest.approx(min(value.values()), rel=1e-9, abs=1e-9)
        assert sending.charged[row] <= left * (1 + 1e-9)
        assert np.square(kept[row]).sum() == pytest.approx(squares[row, sending.components[row] :].sum())


def test_a_computation_that_cannot_be_paid_is_not_done():
    setup = Setup(
        Price(),
        {"compute": ConstantCompute(0.4)},
        {},
        {"compute": Budget(1.0, per="run")},
        Streams(1),
        50,
    )
    knob = setup.knob(Entities.all_clients(4), D)
    spent = np.array([knob.decide(t).spent for t in range(50)])
    assert (spent.sum(axis=0) <= 1.0 + 1e-12).all()
    assert (spent.sum(axis=0) == 0.8).all()  # two fit, three do not


def test_a_client_without_a_limit_sends_all():
    setup = senders()
    budgets = {**setup.budgets, "uplink": Budget(np.array([0.3, np.inf, 0.3]))}
    limited = Setup(Price(), setup.costs, setup.compressors, budgets, setup.streams, T)
    _, _, sent, _ = decisions(limited, normal(9))
    assert (sent[:, 1] == D).all()
    assert (sent[:, 0] < D).any()
