"""The learning rate over a run, and the averaged model: what must hold for any run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfl.algorithm.reference import _learning_rate
from flexfl.algorithm.steps import next_average
from flexfl.compress import TopK
from flexfl.control import Budget, JointBudget, Price, Setup
from flexfl.costs import ConstantCompute, ConstantMessage
from flexfl.deploy.protocol.client import catch_up
from flexfl.errors import ScheduleError
from flexfl.learning_rate import CAP, SHARE, WSD, Constant, Cosine, LearningRate, Step, factor_of
from flexfl.streams import Entities, Streams
from flexfl.wire import encode
from small import BUDGETS, POLICIES, WarmUp, small_engine, small_spec

SHARES = st.floats(0.01, 1.0)
SCHEDULES = st.one_of(
    st.builds(Constant),
    st.builds(Cosine, final=SHARES),
    st.builds(WSD, decay=SHARES, final=SHARES),
    st.builds(Step, at=st.lists(st.floats(0.05, 0.95), min_size=1, max_size=3), by=SHARES),
)


@given(SCHEDULES, st.integers(2, 300))
def test_a_schedule_begins_with_one_and_only_falls_to_its_end(schedule, T):
    factors = [factor_of(schedule, T)(t) for t in range(T)]
    assert factors[0] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(factors))
    end = {Constant: 1.0, Step: getattr(schedule, "by", 1.0) ** len(getattr(schedule, "at", ()))}
    assert factors[-1] == pytest.approx(end.get(type(schedule), getattr(schedule, "final", 1.0)))
    assert schedule.factor(5, 0) > 0  # T is not known
    assert schedule.factor(T + 5, T) == pytest.approx(factors[-1])


@given(st.builds(WSD, decay=SHARES, final=SHARES), st.integers(2, 500))
def test_wsd_is_constant_then_a_straight_line_without_a_jump(schedule, T):
    factors = np.array([schedule.factor(t, T) for t in range(T)])
    steepest = (1 - schedule.final) / (schedule.decay * (T - 1))
    assert np.abs(np.diff(factors)).max() <= steepest + 1e-12
    p = np.arange(T) / (T - 1)
    stable = p <= 1 - schedule.decay
    np.testing.assert_allclose(factors[stable], 1.0, rtol=1e-12)
    falling = schedule.final + (1 - schedule.final) * (1 - p[~stable]) / schedule.decay
    np.testing.assert_allclose(factors[~stable], falling, rtol=1e-9)


class Wrong:
    def __init__(self, value):
        self._value = value

    def factor(self, t, T):
        return self._value


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "fast", None])
def test_a_factor_that_no_learning_rate_can_have_is_refused(value):
    with pytest.raises(ScheduleError, match=r"train.schedule \(Wrong\) must give a finite factor > 0, got "):
        factor_of(Wrong(value), 10)(3)


# A rate that follows the messages -----------------------------------------------------------------


@given(st.lists(st.floats(0.0, 1.0), max_size=400))
def test_the_rate_is_the_oracles_and_within_what_was_seen(sent):
    rate = LearningRate("auto", lambda t: 1.0)
    for t, messages in enumerate(sent):
        assert rate.at(t) == pytest.approx(_learning_rate("auto", sent[:t]), rel=1e-9)
        rate.add(messages)
    seen = [CAP / SHARE, *sent]
    assert min(CAP, SHARE * min(seen)) * (1 - 1e-9) <= max(rate.at(0), 1e-6) <= CAP
    other = LearningRate("auto", lambda t: 1.0)
    other.restore(rate.state())
    assert other.at(7) == rate.at(7)


def test_it_begins_with_the_largest_and_finds_its_level_in_some_hundred_iterations():
    rate = LearningRate("auto", factor_of(WSD(), 1000))
    assert rate.at(0) == pytest.approx(CAP)
    rng = np.random.default_rng(0)
    for _ in range(400):
        rate.add(rng.binomial(100, 0.05) / 100)
    assert rate.at(0) == pytest.approx(0.85 * 0.05, rel=0.1)
    assert rate.at(999) == pytest.approx(0.05 * rate.at(0))
    for _ in range(100_000):  # silence
        rate.add(0.0)
    assert rate.at(0) == pytest.approx(1e-6)


# The price under a schedule -----------------------------------------------------------------------

D, T, N = 10, 40, 3


def priced(schedule, budgets, joint):
    message = ConstantMessage(per_message=0.5, whole_model=2.0)
    costs = {"compute": ConstantCompute(), "uplink": message, "downlink": message}
    compressors = {"uplink": TopK(), "downlink": TopK()}
    return Setup(Price(), costs, compressors, budgets, Streams(5), T, joint=joint, schedule=schedule)


def together(members, **costs):
    return JointBudget(np.array([0.9]), members=np.array(members), costs=costs)


@settings(max_examples=30, deadline=None)
@given(SCHEDULES | st.builds(WarmUp), st.integers(0, 2**32 - 1), st.sampled_from(["own", "shared", "joint"]))
def test_messages_scale_with_the_learning_rate(schedule, seed, kind):
    """What is accumulated under η·f_t is sent as it would be under η: as many components, at λ·f_t²."""
    members = np.zeros(N, dtype=np.int64) if kind == "shared" else None
    budgets = (
        {}
        if kind == "joint"
        else {"uplink": Budget(np.full(1, 0.6) if members is not None else 0.2, members)}
    )
    joint = {"bill": together([0] * N, compute=0.1, uplink=1.0)} if kind == "joint" else {}
    vectors = np.random.default_rng(seed).normal(size=(T, N, D))
    found = []
    for each in (schedule, Constant()):
        setup = priced(each, budgets, joint)
        queues, factors = setup.joint_queues(), factor_of(each, T)
        who = Entities.all_clients(N)
        knob, sender = setup.knob(who, D, queues), setup.sender("uplink", who, D, queues)
        rows = []
        for t in range(T):
            computing = knob.decide(t)
            _, _, sending = sender.send(t, factors(t) * vectors[t])
            queues.close()
            pressure = sending.pressure / factors(t) ** 2
            rows.append([sending.components, sending.charged, pressure, computing.prob])
        found.append(np.array(rows))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, equal_nan=True)
    assert found[1][:, 0].any()


# The averaged model -------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_the_average_is_a_weighted_mean_that_leans_to_the_end(count, seed):
    models = np.random.default_rng(seed).normal(size=(count, 4))
    average = np.full(4, 99.0)
    for t, x in enumerate(models):
        average = next_average(average, x, t)
    s = np.arange(count)
    weights = np.prod([s + place for place in range(1, 10)], axis=0).astype(float)  # ∝ (s+1)…(s+9)
    np.testing.assert_allclose(average, weights @ models / weights.sum(), rtol=1e-9, atol=1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_a_client_that_catches_up_has_the_servers_models_bit_for_bit(sizes, data):
    rng = np.random.default_rng(len(sizes))
    x = x_bar = rng.normal(size=6).astype(np.float32)
    mine, version = (x, x_bar), 0
    updates = []
    for t, size in enumerate(sizes):
        message = TopK().compress(rng.normal(size=6).astype(np.float32), size, lambda: rng)
        x = x + message.dense()
        x_bar = next_average(x_bar, x, t)
        updates.append(encode(message))
        if data.draw(st.booleans()):
            mine, version = catch_up(*mine, updates[version:], version), t + 1
    mine = catch_up(*mine, updates[version:], version)
    assert mine[0].tobytes() == x.tobytes()
    assert mine[1].tobytes() == x_bar.tobytes()
    assert x_bar.dtype == np.float32


@pytest.mark.parametrize("kernels", ["numba", "torch"])
def test_a_run_that_is_resumed_is_the_same_to_the_last_bit(kernels):
    train = {"learning_rate": "auto", "schedule": "wsd", "average": True, "iterations": 30}
    spec = small_spec(POLICIES["price"], {}, BUDGETS["joint"], dtype="float32", **train)
    whole, first, second = (small_engine(spec, kernels=kernels) for _ in range(3))
    for _ in range(30):
        whole.step()
    for _ in range(17):
        first.step()
    second.restore({name: np.array(value) for name, value in first.state().items()})
    rates = [second.step()["learning_rate"] for _ in range(13)]
    assert rates[-1] < 0.06 * max(rates)
    expected, found = whole.state(), second.state()
    assert expected.keys() == found.keys()
    assert {"average.params", "rate.message_rate"} <= expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
