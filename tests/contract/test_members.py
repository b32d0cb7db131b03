"""The same suites for every member that ships, and for the examples."""

from __future__ import annotations

import numpy as np
import pytest
from examples.own_compressor import OneMagnitude
from examples.own_cost import TwoStateChannel
from examples.own_local import Proximal
from examples.own_observer import SpendingLog
from examples.own_policy import SavingUp

from flexfl.compress import COMPRESSORS, Message, Offers
from flexfl.control import POLICIES, Rule
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS, ConstantMessage
from flexfl.data.partition import PARTITIONS
from flexfl.learning_rate import SCHEDULES
from flexfl.local import LOCAL_WORK, LocalSGD
from flexfl.models.build import MODELS
from flexfl.results.trackers import TRACKERS
from flexfl.testing import (
    check_compressor,
    check_cost,
    check_local_work,
    check_model,
    check_observer,
    check_partition,
    check_policy,
    check_schedule,
)

NEEDED = {"randomised": {"send_ratio": 0.1}, "periodic": {"send_every": 3}, "top-k": {"send_ratio": 0.2}} | {
    "fixed-prob": {"compute_prob": [0.1, 0.5, 0.7, 1.0]}
}
MORE = {
    "fading": [{}, {"factor": [0.5, 1.0, 2.0, 3.0]}],
    "gauss-markov": [{}, {"correlation": [0.0, 0.5, 0.9, 0.99]}, {"time_constant": 5.0}],
    "gilbert-elliott": [{"worse": np.inf, "cost": "gauss-markov"}, {"to_bad": [0.1, 0.5, 0.9, 1.0]}],
    "bandwidth": [{"rate": "2 Mbit/s"}, {"trace": {"values": [3.0, 0.0, 2.5], "random_start": True}}],
    "device": [{}, {"members": ["slow", "fast", "medium", "slow"]}, {"unit": "joule"}],
    "energy": [{}],
    "carbon": [{"intensity": "300 gCO2 / kWh"}, {"trace": [250.0, 0.0, 310.5]}],
    "money": [{}, {"trace": {"values": [0.5, 2.0], "by": "clock", "hold": "linear", "interval": 0.3}}],
    "available": [
        {"trace": [1, 0, 1]},
        {"trace": {"values": [0, 1], "random_start": True}, "cost": "device"},
    ],
    "sgd": [{}, {"steps": 1}, {"steps": 3, "momentum": 0.9, "weight_decay": 0.1}],
    "adamw": [{"weight_decay": 0.1}, {"steps": 2, "persistent": True}],
    "momentum": [{}, {"share": 1.0}],
    "sampled": [{}, {"participation": [0.1, 0.3, 0.5, 1.0], "send_ratio": 0.3}],
    "paced": [{}, {"send_ratio": 0.1}],
    "online": [{}, {"tradeoff": {"uplink": [0.01, 0.02, 0.03, 0.04]}, "initial_queue": {"compute": 0.0}}],
}

COMPRESSED = {
    "rounded": [{"values": "float16"}, {"values": "bfloat16"}],
    "threshold": [{"cut": 0.7}, {"relative": 0.3}, {"relative": 1.0}],
    "rand-k": [{}, {"unbiased": True}],
    "levels": [{}, {"bits": 3}],
    "uniform": [
        {"bits": bits, "rounding": rounding}
        for bits, rounding in [(1, "nearest"), (4, "nearest"), (2, "stochastic"), (8, "stochastic")]
    ],
}


def cases(family):
    needed = NEEDED if family is POLICIES else {}
    more = COMPRESSED if family is COMPRESSORS else MORE
    return [(kind, table) for kind in family.members for table in more.get(kind, [needed.get(kind, {})])]


def maker(family, kind, table):
    return lambda: family.make(family.resolve({family.key: kind, **table}, "here"), "here")


@pytest.mark.parametrize(("kind", "table"), cases(COMPUTE_COSTS))
def test_costs_of_computing(kind, table):
    check_cost(maker(COMPUTE_COSTS, kind, table), role="compute")


@pytest.mark.parametrize(("kind", "table"), cases(MESSAGE_COSTS))
def test_costs_of_sending(kind, table):
    check_cost(maker(MESSAGE_COSTS, kind, table))
    if not any(isinstance(value, list) for value in table.values()):  # there is one server
        check_cost(maker(MESSAGE_COSTS, kind, table), role="downlink")


@pytest.mark.parametrize(("kind", "table"), cases(POLICIES))
def test_policies(kind, table):
    check_policy(maker(POLICIES, kind, table))


@pytest.mark.parametrize(("kind", "table"), cases(COMPRESSORS))
def test_compressors(kind, table):
    check_compressor(maker(COMPRESSORS, kind, table))


@pytest.mark.parametrize(("kind", "table"), cases(SCHEDULES))
def test_schedules(kind, table):
    check_schedule(maker(SCHEDULES, kind, table))


@pytest.mark.parametrize(("kind", "table"), cases(LOCAL_WORK))
def test_local_work(kind, table):
    check_local_work(maker(LOCAL_WORK, kind, table))


OPTIONS = {"dirichlet": {"alpha": 0.5}, "similarity": {"similarity": 0.3}, "by-column": {"column": "client"}}


@pytest.mark.parametrize("kind", PARTITIONS.members)
def test_partitions(kind):
    check_partition({"kind": kind, **OPTIONS.get(kind, {})})


@pytest.mark.parametrize("name", MODELS.members)
def test_models(name):
    shape = {"mlp": (6, 28, 28), "cnn": (6, 3, 32, 32)}[name]
    check_model(MODELS.members[name], np.random.default_rng(0).normal(size=shape))


@pytest.mark.parametrize(("kind", "table"), cases(TRACKERS))
def test_trackers(kind, table, tmp_path):
    check_observer(maker(TRACKERS, kind, table), tmp_path)


def test_the_examples(tmp_path):
    check_cost(TwoStateChannel)
    check_cost(lambda: TwoStateChannel(worse=np.array([1.0, 2.0, 3.0, 4.0]), factors=[1.0, 3.0]))
    check_policy(SavingUp)
    check_compressor(OneMagnitude)
    check_compressor(lambda: OneMagnitude(step=1))
    check_local_work(Proximal)
    check_observer(SpendingLog, tmp_path)


# What the suites are there to find ---------------------------------------------------------------


class Forgetful(ConstantMessage):
    """Has a memory and does not tell: it grows dearer from one iteration to the next."""

    def at(self, moment):
        asked = self.__dict__["asked"] = self.__dict__.get("asked", 0) + 1
        return lambda k: asked * np.ones(moment.shape) * np.asarray(k)


class Negative(ConstantMessage):
    def at(self, moment):
        return lambda k: -np.asarray(k, dtype=float)


class Selfish(ConstantMessage):
    """Costs depend on how many others there are."""

    def at(self, moment):
        return lambda k: np.asarray(k) * float(np.size(moment.entities.numbers))


@pytest.mark.parametrize(
    ("member", "message"),
    [(Forgetful, "state"), (Negative, "finite and ≥ 0"), (Selfish, "alone must have the cost")],
)
def test_a_wrong_cost_is_found(member, message):
    with pytest.raises(AssertionError, match=message):
        check_cost(member)


class Tiring:
    """A schedule that remembers how often it was asked."""

    asked = 0

    def factor(self, t, T):
        self.asked += 1
        return 1.0 / self.asked


def test_a_schedule_with_a_memory_is_found():
    with pytest.raises(AssertionError, match="t and T alone"):
        check_schedule(Tiring)


class Lossy(OneMagnitude):
    """Says that nothing stays behind."""

    def offers(self, vector, random):
        offers = super().offers(vector, random)
        kept = np.where(offers.components > 0, 0.0, offers.kept)
        return Offers(offers.components, kept, offers.nbytes)


class Larger(OneMagnitude):
    """Sends exact values where it announced one bit each."""

    def compress(self, vector, amount, random):
        made = super().compress(vector, amount, random)
        return Message(made.dim, made.indices, made.values, vector.dtype.name)


@pytest.mark.parametrize(
    ("member", "message"), [(Lossy, "keeps not what it announced"), (Larger, "not of the size")]
)
def test_a_wrong_compressor_is_found(member, message):
    with pytest.raises(AssertionError, match=message):
        check_compressor(lambda: member(step=1))


class Hasty(LocalSGD):
    """Says that it takes five gradients, and takes one."""

    def change(self, gradient, x, eta, memory):
        return -eta * gradient(x, 0), memory


class InPlace(LocalSGD):
    """Walks away with the server's model."""

    def change(self, gradient, x, eta, memory):
        for k in range(self.steps):
            x -= eta * gradient(x, k)
        return x, memory


class Private(LocalSGD):
    """Keeps its momentum to itself, where no checkpoint finds it."""

    def change(self, gradient, x, eta, memory):
        found, memory = super().change(gradient, x, eta, memory)
        kept = self.__dict__["kept"] = 0.5 * self.__dict__.get("kept", 0.0) + found
        return kept, memory


class ByRow(LocalSGD):
    """Divides by the norm of all clients' gradients together."""

    def change(self, gradient, x, eta, memory):
        found, memory = super().change(gradient, x, eta, memory)
        return found / (found * found).sum() ** 0.5, memory


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (Hasty, "must use minibatches 0 to 4"),
        (InPlace, "x must not be changed in place"),
        (Private, "all that work remembers"),
        (ByRow, "alone must change as it does among many"),
    ],
)
def test_wrong_local_work_is_found(member, message):
    with pytest.raises(AssertionError, match=message):
        check_local_work(member)


class Counting(Rule):
    """Sends more every time, and forgets how often it has."""

    asked = 0

    def decide(self, cost, choices, moment):
        self.asked += 1
        return choices.at_most(self.asked)


class Drifting(SavingUp):
    def send_rule(self, scope):
        return Counting()


def test_a_wrong_policy_is_found():
    with pytest.raises(AssertionError, match="must decide as the one whose state it got"):
        check_policy(Drifting)
