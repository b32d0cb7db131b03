"""Decisions are checked once, where they are made, with the rule's name; knobs carry all memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pytest
from examples.own_compressor import OneMagnitude
from examples.own_cost import TwoStateChannel

from flexfl.compress import TopK
from flexfl.control import Budget, Full, Knob, Online, Randomised, Rule, Sender, Setup, VirtualQueue
from flexfl.costs import ConstantCompute, ConstantMessage, MeasuredCompute, MeasuredMessage
from flexfl.costs.linear import Linear
from flexfl.errors import CostError, DecisionError, InputError
from flexfl.spec.schema import parse
from flexfl.streams import Entities, Streams

N, D = 3, 5
EVERYONE = Entities.all_clients(N)


class Says(Rule):
    """Decides on whatever it was given."""

    def __init__(self, decision):
        self.decision = decision

    def decide(self, *seen):
        return self.decision


def knob(decision, cost=None):
    return Knob("compute", cost or ConstantCompute(), Says(decision), EVERYONE, Streams(1), D)


def sender(decision, cost=None, compressor=None):
    rule = decision if isinstance(decision, Rule) else Says(decision)
    return Sender("uplink", cost or ConstantMessage(), rule, EVERYONE, Streams(1), D, compressor or TopK())


@pytest.mark.parametrize("q", [2.0, 0.0, -0.1, np.nan, np.inf])
def test_a_probability_that_is_none(q):
    decision = np.array([0.5, 0.5, q])
    message = r"Says must decide on a probability q in \(0, 1\].*client 2.*iteration 7"
    with pytest.raises(DecisionError, match=message):
        knob(decision).decide(7)


@dataclass(frozen=True)
class Away:
    """α = ∞ for client 1 in even iterations; with a λ that is α·q, or α·q² without a closed form."""

    square: bool = False
    mean_cost = 0.5

    def at(self, moment):
        free = np.where((np.arange(N) == 1) & (moment.iteration % 2 == 0), np.inf, 0.5)
        alpha = np.asarray(moment.pick(free))
        return (lambda q: alpha * np.square(q)) if self.square else Linear(alpha)


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("policy", [Online(), Online(min_prob=0.1), Randomised(send_ratio=0.5), Full()])
@pytest.mark.parametrize("limit", [0.1, None])
def test_a_client_for_whom_computing_is_not_to_be_had(policy, limit, square):
    """It does not compute, spends nothing, and its queue falls; nobody else notices."""
    budget = None if limit is None else Budget(limit)
    setup = Setup(policy, {"compute": Away(square)}, {}, {"compute": budget}, Streams(1))
    knob = setup.knob(EVERYONE, D)
    everywhere = setup.knob(Entities.one_client(1, N), D)
    for t in range(6):
        found, alone = knob.decide(t), everywhere.decide(t)
        assert np.array_equal(np.isnan(found.prob), [False, t % 2 == 0, False])
        assert np.isnan(alone.prob) == (t % 2 == 0)
        assert np.isfinite(found.charged).all()
        if t % 2 == 0:
            assert not found.computed[1]
            assert not alone.computed
            assert found.charged[1] == found.spent[1] == alone.charged == 0
        else:
            np.testing.assert_allclose(alone.prob, found.prob[1])


def test_a_bound_below_for_q():
    """Assumption 2: q ≥ min_prob whatever the queue, by client, in the spec too."""
    policy = Online(min_prob=[0.3, 0.0, 0.5], initial_queue=1e6)
    setup = Setup(policy, {"compute": ConstantCompute()}, {}, {"compute": Budget(0.01)}, Streams(1))
    prob = setup.knob(EVERYONE, D).decide(0).prob
    np.testing.assert_allclose(prob, [0.3, np.sqrt(0.02 / 1e6), 0.5])
    assert parse({"control": {"min_prob": 0.2}}).control.model_dump()["min_prob"] == 0.2
    with pytest.raises(InputError, match=r"control.min_prob must be in \[0, 1\], got 1.5"):
        parse({"control": {"min_prob": 1.5}})


@pytest.mark.parametrize(("k", "who"), [([0, -1, 2], 1), ([0, 1, D + 1], 2), ([10**9, 0, 0], 0)])
def test_an_amount_that_is_none(k, who):
    with pytest.raises(DecisionError, match=f"Says must decide on amounts .*client {who} in iteration 7"):
        sender(np.array(k)).send(7, np.ones((N, D)))


@pytest.mark.parametrize("decision", [np.array([0.5, 1.0]), "all", np.ones(3, dtype=bool), [1.5, 2.0, 0.0]])
def test_a_decision_of_another_kind(decision):
    with pytest.raises(DecisionError, match="Says must decide on"):
        sender(decision).send(0, np.ones((N, D)))


def test_one_decision_for_all():
    assert knob(0.5).decide(0).prob.tolist() == [0.5] * N
    messages, kept, sending = sender(2).send(0, np.arange(1.0, 16.0).reshape(N, D))
    assert sending.components.tolist() == [2, 2, 2]
    assert [message.indices.tolist() for message in messages] == [[3, 4]] * N
    assert kept[0].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0]


def test_more_than_there_is_sends_what_there_is():
    """A message holds no zeros, and a message of nothing costs nothing."""
    b = np.zeros((N, D))
    b[1, 2] = 3.0
    _, kept, sending = sender(4, ConstantMessage(1.0, 5.0)).send(0, b)
    assert sending.components.tolist() == [0, 1, 0]
    assert sending.charged.tolist() == [0.0, 2.0, 0.0]
    assert not kept.any()


class Queued(Says):
    def __init__(self, decision, budget):
        super().__init__(decision)
        self.queue = VirtualQueue(budget, initial=1.0)

    @property
    def pressure(self):
        return self.queue.pressure


def test_a_queue_of_another_shape_is_refused():
    """One queue for all clients would be charged N costs at once."""
    for budget in (0.1, np.full(2, 0.1)):
        with pytest.raises(InputError, match=r"Queued\) must have a queue of shape \(3,\)"):
            sender(Queued(1, budget))
    assert sender(Queued(1, np.full(N, 0.1))).send(0, np.ones((N, D)))[2].pressure.tolist() == [1.0] * N


class Wild:
    def __init__(self, value):
        self.value = value

    def at(self, moment):
        return lambda amount: np.where(np.arange(N) == 1, self.value, 0.0)


@pytest.mark.parametrize("value", [-1.0, np.nan, -np.inf])
def test_a_cost_that_no_budget_can_be_held_against(value):
    message = r"costs\.compute must be finite and ≥ 0, got .* client 1 in iteration 3"
    with pytest.raises(CostError, match=message):
        knob(0.5, Wild(value)).decide(3)
    with pytest.raises(CostError, match=r"costs\.uplink"):
        sender(1, Wild(value)).send(3, np.ones((N, D)))


def test_measured_costs_are_charged_and_remembered():
    uplink = sender(2, MeasuredMessage())
    _, _, sending = uplink.send(0, np.ones((N, D)))
    assert sending.charged.tolist() == sending.nbytes.tolist()
    assert uplink.cost.estimate.tolist() != [5.0] * N
    again = sender(2, MeasuredMessage())
    again.restore(uplink.state())
    assert np.array_equal(again.cost.estimate, uplink.cost.estimate)
    compute = Knob("compute", MeasuredCompute(), Says(1.0), Entities.one_client(0, N), Streams(1), D)
    assert compute.decide(0).charged == 0.0  # nothing is known yet
    assert compute.observe(0.25)
    assert compute.decide(1).charged == 0.25
    assert not knob(1.0).observe(0.25)


def test_a_state_carries_queues_and_costs_and_nothing_else_fits():
    setup = Setup(
        Online(),
        {"compute": ConstantCompute(), "uplink": TwoStateChannel(), "downlink": ConstantMessage()},
        {"uplink": TopK(), "downlink": TopK()},
        {"uplink": Budget(0.1)},
        Streams(2),
    )
    whole = copy.deepcopy(setup).sender("uplink", EVERYONE, D)
    half = copy.deepcopy(setup).sender("uplink", EVERYONE, D)
    vectors = np.random.default_rng(0).normal(size=(20, N, D))
    for t in range(20):
        whole.send(t, vectors[t])
        if t == 9:
            half.restore(copy.deepcopy(whole.state()))
        elif t > 9:
            half.send(t, vectors[t])
    names = {"cost.bad", "cost.next", "rule.length", "allowance.spent", "allowance.total"}
    assert set(whole.state()) == names
    for name, values in whole.state().items():
        assert np.array_equal(values, half.state()[name]), name
    with pytest.raises(ValueError, match=r"cost\.bad is missing"):
        half.restore({"rule.length": np.ones(N)})
    with pytest.raises(ValueError, match="has no memory here"):
        sender(1).restore(whole.state())


def test_iterations_that_pass_by():
    compute = Setup(
        Online(initial_queue=1.0),
        {"compute": ConstantCompute()},
        {},
        {"compute": Budget(0.25)},
        Streams(2),
    ).knob(Entities.one_client(1, N), D)
    compute.skip(2)
    assert float(compute.rule.pressure) == 0.5
    assert float(compute.idle(2).pressure) == 0.5
    assert float(compute.rule.pressure) == 0.25


# What a record holds stays as it was ---------------------------------------------------------------


class InPlace(Rule):
    """Changes its own arrays, which it returned before."""

    def __init__(self):
        self.q, self.length = np.full(N, 0.5), np.ones(N)

    @property
    def pressure(self):
        return self.length

    def charge(self, spent):
        self.length += spent

    def decide(self, cost, moment):
        self.q *= 0.9
        return self.q


def test_a_rule_that_changes_its_arrays_in_place_does_not_change_records():
    compute = Knob("compute", ConstantCompute(), InPlace(), EVERYONE, Streams(1), D)
    found = [compute.decide(t) for t in range(3)]
    assert [round(float(one.prob[0]), 6) for one in found] == [0.45, 0.405, 0.3645]
    assert [float(one.pressure[0]) for one in found] == pytest.approx([1.0, 1.45, 1.855])


def test_what_is_restored_may_be_changed_in_place():
    """A checkpoint is mapped read-only."""
    setup = Setup(Online(), {"compute": ConstantCompute()}, {}, {"compute": Budget(0.25)}, Streams(2))
    first, second = setup.knob(EVERYONE, D), setup.knob(EVERYONE, D)
    state = first.state()
    for values in state.values():
        values.flags.writeable = False
    second.restore(state)
    second.rule.queue.length += 1.0


def test_knobs_of_one_setup_share_no_memory():
    costs = {"compute": ConstantCompute(), "uplink": TwoStateChannel(), "downlink": ConstantMessage()}
    setup = Setup(
        Online(), costs, {"uplink": TopK(), "downlink": TopK()}, {"uplink": Budget(0.1)}, Streams(2)
    )
    vectors = np.random.default_rng(0).normal(size=(N, D))
    charged = []
    for _ in range(2):
        uplink = setup.sender("uplink", EVERYONE, D)
        charged.append([uplink.send(t, vectors)[2].charged.tolist() for t in range(10)])
    assert charged[0] == charged[1]


# Amounts are not always components ------------------------------------------------------------------


def test_the_baseline_pays_for_components_whatever_amounts_mean():
    costs = {"compute": ConstantCompute(), "uplink": ConstantMessage(0.0, 1.0), "downlink": ConstantMessage()}
    spent = {}
    for name, compressor in {"top-k": TopK(), "own": OneMagnitude(step=10)}.items():
        compressors = {"uplink": compressor, "downlink": TopK()}
        setup = Setup(Randomised(0.5), costs, compressors, {"uplink": Budget(0.05)}, Streams(2))
        uplink = setup.sender("uplink", EVERYONE, 400)
        vectors = np.random.default_rng(0).normal(size=(N, 400))
        spent[name] = np.mean([uplink.send(t, vectors)[2].charged for t in range(400)])
    assert spent["own"] == pytest.approx(0.05, rel=0.3)
    assert spent["top-k"] == pytest.approx(0.05, rel=0.3)


class Remembers(TopK):
    """Counts its messages: a memory of each sender."""

    def __init__(self):
        object.__setattr__(self, "sent", 0)

    def compress(self, vector, amount, random):
        object.__setattr__(self, "sent", self.sent + 1)
        return super().compress(vector, min(amount, self.sent), random)

    def state(self):
        return {"sent": np.array(self.sent)}

    def restore(self, state):
        object.__setattr__(self, "sent", int(state["sent"]))


def test_each_sender_has_the_memory_of_its_compressor():
    among_all = sender(1, compressor=Remembers())
    for t in range(3):
        among_all.send(t, np.ones((N, D)))
    assert [one.sent for one in among_all.compressor] == [3] * N
    again = sender(1, compressor=Remembers())
    again.restore(among_all.state())
    assert [one.sent for one in again.compressor] == [3] * N


def test_values_of_another_type_are_refused():
    class Wide(TopK):
        def compress(self, vector, amount, random):
            return super().compress(vector.astype(np.float64), amount, random)

    with pytest.raises(ValueError, match="Wide must send values of the vector's type, float32, got float64"):
        sender(1, compressor=Wide()).send(0, np.ones((N, D), dtype=np.float32))


def test_a_list_by_client_is_not_for_the_server_nor_for_other_numbers_of_clients():
    with pytest.raises(ValueError, match="there is one server"):
        Entities.the_server().pick([0.1, 0.2])
    with pytest.raises(ValueError, match="for each of the 3 clients, got 2"):
        EVERYONE.pick([0.1, 0.2])
