"""Budgets over several decisions: what is decided is the best against all queues, and the budgets hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flexfl.compress import TopK
from flexfl.control import Budget, Full, JointBudget, Online, Price, Setup
from flexfl.control.joint import JointCost
from flexfl.costs import (
    Affine,
    ConstantCompute,
    ConstantMessage,
    FadingChannel,
    PacketMessage,
    UniformCompute,
)
from flexfl.costs.linear import Linear
from flexfl.errors import CostError, DecisionError, InputError
from flexfl.spec.schema import parse
from flexfl.streams import Entities, Streams
from small import BUDGETS, POLICIES, small_engine, small_reference, small_spec

N, D = 4, 30
EVERYONE, SERVER = Entities.all_clients(N), Entities.the_server()
TOGETHER = np.zeros(N, dtype=int)


def setup(joint, budgets=None, policy=None, **costs):
    costs = {
        "compute": UniformCompute(),
        "uplink": FadingChannel(),
        "downlink": FadingChannel(factor=0.2),
        **costs,
    }
    return Setup(
        policy or Online(),
        costs,
        {"uplink": TopK(), "downlink": TopK()},
        budgets or {},
        Streams(5),
        joint=joint,
    )


def play(made, iterations, seed=0):
    """Run Algorithm 1 on random gradients; return what was decided, and the joint queues."""
    rng, queues = np.random.default_rng(seed), made.joint_queues()
    compute = made.knob(EVERYONE, D, queues)
    uplink, downlink = made.sender("uplink", EVERYONE, D, queues), made.sender("downlink", SERVER, D, queues)
    e, r, told = np.zeros((N, D)), np.zeros(D), []
    for t in range(iterations):
        before = {name: queue.length.copy() for name, queue in queues.queues.items()}
        computing = compute.decide(t)
        b = e + np.where(computing.computed, 1 / computing.prob, 0)[:, None] * rng.normal(size=(N, D))
        messages, e, up = uplink.send(t, b)
        a = r + np.mean([message.dense() for message in messages], axis=0)
        _, r, down = downlink.send(t, a)
        charged = queues.charged
        queues.close()
        told.append((before, b, computing, up, down, charged))
    return told, queues


@pytest.mark.parametrize("cost", [ConstantMessage(0.02, 0.6), PacketMessage(0.05, 4), 1.7])
@pytest.mark.parametrize("own", [None, 0.2])
def test_what_is_sent_is_the_best_of_all(cost, own):
    """Against every k: V·‖b − v‖² + Φ·φ(k) + Q·φ_j(k)."""
    joint = {"bill": JointBudget(np.array([0.3]), {"uplink": cost}, TOGETHER)}
    budgets = {} if own is None else {"uplink": Budget(own)}
    made = setup(joint, budgets)
    told, _ = play(made, 40)
    Phi, sent = np.ones(N), 0
    for t, (before, b, _, up, _, _) in enumerate(told):
        moment = made.streams.moment("uplink", t, D, EVERYONE)
        phi = made.costs["uplink"].at(moment)
        phi_j = (lambda k, phi=phi: 1.7 * phi(k)) if isinstance(cost, float) else cost.at(moment)
        k = np.arange(D + 1)[:, None] * np.ones(N, dtype=int)
        kept = np.square(np.sort(np.abs(b), axis=1)[:, ::-1])
        kept = np.vstack([kept.sum(axis=1), (kept.sum(axis=1)[:, None] - np.cumsum(kept, axis=1)).T])
        own_price = 0.0 if own is None else Phi * phi(k)
        objective = 0.02 * kept + own_price + before["bill"][0] * phi_j(k)
        chosen = np.take_along_axis(objective, up.components[None], axis=0)[0]
        np.testing.assert_allclose(chosen, objective.min(axis=0), rtol=1e-9, atol=1e-12)
        sent += up.components.sum()
        if own is not None:
            Phi = np.maximum(0.001, Phi + up.charged - own)
    assert sent > 0


@pytest.mark.parametrize("square", [False, True])
def test_who_computes_is_the_best_of_all(square):
    class Squared:
        def at(self, moment):
            alpha = 0.1 + moment.uniform("square")
            return lambda q: alpha * np.square(q)

    cost = Squared() if square else ConstantCompute(0.4)
    joint = {
        "battery": JointBudget(np.full(N, 0.2), {"compute": 2.0, "uplink": 1.0}, np.arange(N)),
        "euros": JointBudget(np.array([0.3]), {"compute": cost}, TOGETHER),
    }
    made = setup(joint)
    grid = np.linspace(1e-4, 1, 20_000)[:, None]
    for t, (before, _, computing, _, _, _) in enumerate(play(made, 15)[0]):
        moment = made.streams.moment("compute", t, D, EVERYONE)
        own, other = made.costs["compute"].at(moment), cost.at(moment)

        def objective(q, own=own, other=other, before=before):
            return 0.02 / q + before["battery"] * 2.0 * own(q) + before["euros"][0] * other(q)

        least = objective(grid * np.ones(N)).min(axis=0)
        assert np.all(objective(computing.prob) <= least * (1 + 1e-6))


def test_queues_are_charged_the_sum_over_all():
    """Of all knobs, of all members, and of nobody else; and Q' = max(floor, Q + Σ − limit)."""
    joint = {
        "bill": JointBudget(
            np.array([0.5, 0.1]),
            {"compute": 0.5, "uplink": ConstantMessage(0.1, 1.0), "downlink": 3.0},
            np.array([0, 0, 1, -1]),
            server=0,
        )
    }
    told, queues = play(setup(joint), 20)
    total = np.zeros(2)
    for place, (before, _, computing, up, down, charged) in enumerate(told):
        messages = np.where(up.components > 0, 0.1 + up.components / D, 0.0)
        parts = 0.5 * computing.charged + messages
        expected = np.array([parts[0] + parts[1] + 3.0 * down.charged, parts[2]])
        np.testing.assert_allclose(charged["bill"], expected)
        total += expected
        if place + 1 < len(told):
            following = np.maximum(0.001, before["bill"] + expected - joint["bill"].limits)
            np.testing.assert_allclose(told[place + 1][0]["bill"], np.maximum(0.0, following), atol=1.1e-3)
    np.testing.assert_allclose(queues.totals["bill"], total)


@pytest.mark.parametrize("who", ["each", "together", "with the server"])
def test_budgets_are_kept(who):
    """Theorem 2 for coupled constraints: the average exceeds the limit by at most (Q_T − W)/T."""
    members = np.arange(N) if who == "each" else TOGETHER
    server = 0 if who == "with the server" else -1
    costs = {"compute": 1.0, "uplink": 1.0} | ({"downlink": 1.0} if server == 0 else {})
    joint = {"all": JointBudget(np.full(members.max() + 1, 0.25), costs, members, server)}
    told, queues = play(setup(joint), 2000)
    average = queues.totals["all"] / len(told)
    bound = (queues.queues["all"].length - 1.0) / len(told)
    assert np.all(average <= 0.25 + bound + 1e-12)
    assert np.all(average <= 0.25 * 1.1)
    assert np.all(average >= 0.15)  # what may be spent is spent


def test_what_others_spend_is_felt():
    """A client that shares a budget with one that computes at a high price computes less itself."""
    alone = {"it": JointBudget(np.full(N, 0.1), {"compute": 1.0}, np.arange(N))}
    dear = UniformCompute(low=[0.1, 0.1, 0.1, 5.0], high=[0.2, 0.2, 0.2, 9.0])
    shared = {"it": JointBudget(np.array([0.1 * N]), {"compute": 1.0}, TOGETHER)}
    found = {}
    for name, joint in (("alone", alone), ("shared", shared)):
        told, _ = play(setup(joint, compute=dear), 600)
        found[name] = np.mean([computing.prob for _, _, computing, _, _, _ in told[200:]], axis=0)
    assert found["alone"][0] > found["shared"][0]
    assert found["alone"][3] < found["shared"][3]


def test_a_policy_that_does_not_look_is_charged_all_the_same():
    joint = {"bill": JointBudget(np.array([0.01]), {"compute": 1.0, "uplink": 1.0}, TOGETHER)}
    told, queues = play(setup(joint, policy=Full()), 5)
    assert all((up.components == D).all() for _, _, _, up, _, _ in told)
    spent = sum(computing.charged.sum() + up.charged.sum() for _, _, computing, up, _, _ in told)
    assert queues.totals["bill"][0] == pytest.approx(spent)


def test_sums_of_costs_are_closed_forms_where_they_can_be():
    affine = Affine(np.array([1.0, 2.0]), np.array([0.1, 0.2]))
    total = JointCost(affine, ((np.array([3.0, 0.0]), affine),)).total(2.0)
    assert isinstance(total, Affine)
    np.testing.assert_allclose(total(np.array([5, 0])), [5 * 1.5, 0.0])


@pytest.mark.parametrize("costs", [{}, {"uplink": {"kind": "examples.own_cost:TwoStateChannel"}}])
def test_a_run_goes_on_with_its_joint_queues(costs):
    budget = BUDGETS["joint"] | {
        "memory": {"limit": 0.3, "uplink": {"kind": "examples.own_cost:TwoStateChannel"}}
    }
    spec = small_spec(POLICIES["online"], costs, budget)
    whole, first = small_engine(spec), small_engine(spec)
    for _ in range(7):
        whole.step(), first.step()
    again = small_engine(spec)
    again.restore(first.state())
    for _ in range(8):
        one, other = whole.step(), again.step()
        assert np.array_equal(one["uplink_components"], other["uplink_components"])
        assert np.array_equal(one["compute_prob"], other["compute_prob"])
    for name, total in whole.joint.totals.items():
        assert np.array_equal(total, again.joint.totals[name])
    assert np.array_equal(whole.params, again.params)


def test_nothing_is_lost():
    spec = small_spec(POLICIES["online"], {}, BUDGETS["joint"])
    engine = small_engine(spec)
    start, applied = engine.conserved(), 0.0
    for step in small_reference(spec, 20):
        engine.step()
        applied = applied + step.applied
    np.testing.assert_allclose(engine.conserved(), start + applied, rtol=0, atol=1e-10)


WRONG = {
    "a typing error": ({"uplnik": 0.1}, r"budget.uplnik is not a key here.*did you mean uplink"),
    "nothing counted": ({"b": {"limit": 1}}, "budget.b must say what it counts"),
    "no limit": ({"b": {"compute": 1}}, "budget.b needs either limit or shared"),
    "two limits": ({"b": {"compute": 1, "limit": 1, "shared": []}}, "needs either limit or shared"),
    "a key": ({"b": {"compute": 1, "limit": 1, "upload": 2}}, "budget.b.upload is not a key here"),
    "a limit": ({"b": {"compute": 1, "limit": 0}}, "budget.b.limit must be > 0"),
    "a list": ({"b": {"compute": 1, "limit": [1, 2]}}, "one number for each of the 4 clients"),
    "a factor": ({"b": {"compute": -1, "limit": 1}}, "budget.b.compute must be > 0, so many times"),
    "a kind": ({"b": {"compute": {"kind": "fading"}, "limit": 1}}, "budget.b.compute.kind must be one of"),
    "a server": ({"b": {"downlink": 1, "limit": 1}}, "budget.b.downlink is the server's"),
    "clients": ({"b": {"uplink": 1, "shared": [{"clients": "0-7", "limit": 1}]}}, "clients from 0 to 3"),
    "twice": (
        {"b": {"uplink": 1, "shared": [{"clients": "all", "limit": 1}, {"clients": [2], "limit": 1}]}},
        "in one group only",
    ),
    "two servers": (
        {"b": {"uplink": 1, "shared": [{"server": True, "limit": 1}, {"server": True, "limit": 1}]}},
        "the server in one group only",
    ),
}


@pytest.mark.parametrize(("budget", "message"), WRONG.values(), ids=WRONG)
def test_mistakes(budget, message):
    with pytest.raises(InputError, match=message):
        parse({"data": {"clients": N}, "budget": budget})


class Once:
    """α = ∞ (or β = ∞) for client 0 in iteration 2, or what it is made with."""

    def __init__(self, value=np.inf, message=False):
        self.value, self.message = value, message

    def at(self, moment):
        cost = np.asarray(moment.pick([self.value if moment.iteration == 2 else 0.3] + [0.3] * (N - 1)))
        return Affine(cost, np.full(moment.shape, 0.01)) if self.message else Linear(cost)


def test_a_resource_that_is_not_to_be_had_for_once():
    """Whoever cannot pay does nothing in that iteration, is charged nothing, and goes on as before."""
    for joint, knob in (({"compute": Once()}, "compute"), ({"uplink": Once(message=True)}, "uplink")):
        for policy in (Online(), Online(initial_queue=0.0, floor=0.0)):
            bill = {"bill": JointBudget(np.array([0.9]), joint, TOGETHER)}
            told, queues = play(setup(bill, policy=policy), 12)
            assert np.isfinite(queues.totals["bill"]).all()
            _, _, computing, up, _, _ = told[2]
            done = computing.computed[0] if knob == "compute" else up.components[0]
            assert not done
            later = [one[2].prob[0] if knob == "compute" else one[3].components[0] for one in told[3:]]
            assert np.max(later) > 0


@pytest.mark.parametrize("value", [-3.0, np.nan])
def test_a_cost_of_a_joint_budget_is_checked(value):
    bill = {"bill": JointBudget(np.array([0.9]), {"compute": Once(value)}, TOGETHER)}
    with pytest.raises((CostError, DecisionError), match=r"client 0.*iteration 2|iteration 2"):
        play(setup(bill), 5)


def test_sends_keep_their_floor_in_a_budget_that_computing_shares():
    """At 0 a message would be free, and one huge message follow (the footnote of the paper)."""
    bill = {"bill": JointBudget(np.array([0.2]), {"compute": 0.001, "uplink": 1.0}, TOGETHER)}
    queues = setup(bill).joint_queues()
    for _ in range(20):
        queues.close()
    assert queues.queues["bill"].length[0] == 0.001


def test_a_measured_cost_is_for_the_knob_itself():
    with pytest.raises(InputError, match=r"budget\.b\.uplink\.kind is for a knob's own cost only"):
        parse({"budget": {"b": {"limit": 9, "uplink": {"kind": "measured"}}}})


@pytest.mark.parametrize(
    ("period", "seconds", "nominal", "more"),
    [
        ({}, 0.0, 60.0, {}),
        ({"per": "run"}, 0.0, 3.0, {"per": "run", "limit": 60.0}),
        ({"per": "time", "seconds": 3600.0}, 120.0, 2.0, {"per": "hour", "limit": 60.0}),
    ],
)
def test_averages_are_against_the_share_of_an_iteration(period, seconds, nominal, more):
    """Of a total and of a rate as of an average; with its unit, and what it is for."""
    budget = JointBudget(np.full(N, 60.0), {"uplink": 1.0}, np.arange(N), unit="byte", **period)
    made = replace(setup({"line": budget}, policy=Price()), iterations=20)
    queues = made.joint_queues()
    for t in range(2):
        queues.open(t, t * seconds)
        queues.charge("line", np.arange(N), np.arange(N) * 0.5)
        queues.close()
    found = queues.averages(2)["line"]
    worst = {"who": "client 3", "charged": 1.5, "budget": nominal}
    assert found == {"charged": 0.75, "budget": nominal, "worst": worst, "unit": "byte"} | more
