"""Plans: the theorems for the knobs of many specs, against what the same runs do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flexfl.control import Budget, Online
from flexfl.experiments.forecast import spending_of
from flexfl.experiments.guarantees import computing_of, policy_of, prices_of, scope_of, violations_of
from flexfl.experiments.plan import make_plan, plan_of
from flexfl.experiments.rehearsal import compute_alone, rehearse
from flexfl.parameters import KNOBS
from flexfl.sim.engine import Engine
from flexfl.spec.build import build_setup
from flexfl.spec.load import load_spec
from flexfl.theory import highest_send_price, inverse_prob_bound, offline_probs, violation_bound
from small import BUDGETS, CLIENTS, COSTS, POLICIES, small_engine, small_spec

T = 40


def plan_for(
    control: Any = None, costs: Any = None, budget: Any = None, weights: Any = "equal", tried: int = T
):
    """The plan of the small federation, whose trial is the whole run; and that trial."""
    spec = small_spec(
        control or {"policy": "online"},
        costs or {},
        BUDGETS["all"] if budget is None else budget,
        iterations=T,
    )
    problem = small_engine(spec, weights)._problem
    trial = rehearse(problem, tried) if tried else None
    return plan_of(problem, spec, "small", trial, None), trial


PAIRS = [(costs, "all") for costs in COSTS] + [("constant", budget) for budget in BUDGETS]


@pytest.mark.parametrize(("costs", "budget"), PAIRS)
def test_theorems_2_and_3_hold_for_the_run_that_was_tried(costs, budget):
    """The trial is the whole run: D and B of the theorems are its own."""
    spec = small_spec({"policy": "online"}, COSTS[costs], BUDGETS[budget], iterations=T)
    problem = small_engine(spec)._problem
    setup, trial = problem.setup, rehearse(problem, T)
    alone = compute_alone(setup, CLIENTS, problem.model.dim, T)
    scopes = {knob: scope_of(setup, knob, CLIENTS) for knob in KNOBS}
    computing = computing_of(setup.policy, scopes["compute"], alone)
    assert computing.optimum <= computing.reached * (1 + 1e-3)  # on a grid, to its width
    assert computing.bound is None or computing.reached <= computing.bound
    assert computing.worst >= computing.reached
    found = violations_of(setup, scopes, alone, trial, T)
    assert set(found) == {knob for knob in KNOBS if np.isfinite(scopes[knob].limits).any()}
    for knob, one in found.items():
        if np.isfinite(scopes[knob].limits).all():
            assert np.mean(trial.charged[knob]) <= np.mean(scopes[knob].limits) + one.bound
        assert one.by_tradeoff[0][1] < one.by_tradeoff[1][1] < one.by_tradeoff[2][1]
        assert one.by_tradeoff[1][1] == pytest.approx(one.bound)
        if one.initial_queue_needed:
            B = one.largest_cost**2 / 2
            allowed = violation_bound(one.tradeoff, one.initial_queue_needed, T, one.largest, B)
            assert allowed == pytest.approx(0.01 * one.budget, rel=1e-6)
    for knob, bound in prices_of(scopes, alone, trial, T).items():
        assert np.isfinite(scopes[knob].limits).any()
        assert 0 <= bound < math.inf
    for knob in KNOBS:
        spending = spending_of(setup, scopes[knob], alone, trial, T)
        assert spending.total == pytest.approx(T * spending.each)
        if knob != "compute":
            assert spending.each == pytest.approx(np.mean(trial.spent[knob]))


@pytest.mark.parametrize("name", POLICIES)
def test_the_paper_s_theorems_are_told_of_the_paper_s_policy(name):
    spec = small_spec(POLICIES[name], COSTS["constant"], BUDGETS["all"], iterations=T)
    problem = small_engine(spec)._problem
    setup, trial = problem.setup, rehearse(problem, 30)
    alone = compute_alone(setup, CLIENTS, problem.model.dim, T)
    scopes = {knob: scope_of(setup, knob, CLIENTS) for knob in KNOBS}
    by_queue = [knob for knob in KNOBS if isinstance(policy_of(setup, knob), Online)]
    assert list(violations_of(setup, scopes, alone, trial, T)) == by_queue
    assert set(prices_of(scopes, alone, trial, T)) == set(KNOBS)
    found = computing_of(policy_of(setup, "compute"), scopes["compute"], alone)
    assert (found.bound is None) == ("compute" not in by_queue)


def test_prices_of_clients_that_share():
    """Of m clients in a group: m times the largest ‖b‖² and cost, against the budget of the group."""
    group = {"shared": [{"clients": [0, 1, 2], "limit": 0.06}], "others": 0.05}
    spec = small_spec({"policy": "online"}, COSTS["constant"], {"uplink": group}, iterations=T)
    problem = small_engine(spec)._problem
    trial, alone = rehearse(problem, T), compute_alone(problem.setup, CLIENTS, 1, T)
    scope = scope_of(problem.setup, "uplink", CLIENTS)
    watch, cost = trial.watches["uplink"], trial.largest_cost["uplink"]
    first = 0.99 * watch.first_energy / 0.52
    bounds = []
    for members, limit in [((0, 1, 2), 0.06), ((3,), 0.05), ((4,), 0.05), ((5,), 0.05)]:
        m, start = len(members), max(first[list(members)])
        highest = highest_send_price(start, energy=m * watch.energy, budget=limit, largest=m * cost, step=0.5)
        bounds.append(math.log(highest / start) / (0.5 * T))
    assert prices_of({"uplink": scope}, alone, trial, T)["uplink"] == pytest.approx(max(bounds))


def test_the_knob_alone_decides_as_in_the_run():
    spec = small_spec({"policy": "online"}, COSTS["by client"], BUDGETS["some"], iterations=T)
    engine = small_engine(spec)
    alone = compute_alone(build_setup(spec), CLIENTS, engine.dim, T)
    for t in range(20):
        record = engine.step()
        np.testing.assert_array_equal(alone.probs[t], record["compute_prob"])
        np.testing.assert_array_equal(alone.charged[t], record["compute_cost"])
    np.testing.assert_allclose(alone.alphas * alone.probs, alone.charged)


def test_the_optimum_of_clients_that_share_is_that_of_all_their_iterations():
    setup = build_setup(small_spec({"policy": "online"}, {}, BUDGETS["shared"], iterations=T))
    alone = compute_alone(setup, CLIENTS, 1, T)
    found = computing_of(setup.policy, scope_of(setup, "compute", CLIENTS), alone)
    first = offline_probs(alone.alphas[:, :3].reshape(-1), 0.6 / 3).value
    others = [offline_probs(alone.alphas[:, n], 0.3).value for n in (3, 4, 5)]
    assert found.optimum == pytest.approx((3 * first + sum(others)) / 6)
    # Theorem 3 for both kinds: of the group, the sum of 1/q is what its queue weighs.
    cost = alone.charged.max()
    of_group = first + (3 * cost) ** 2 / 2 / (0.02 * 3) + 1 / (2 * 0.02 * 3 * T)
    alone_each = [inverse_prob_bound(o, V=0.02, W=1.0, T=T, B=max(cost, 0.3) ** 2 / 2) for o in others]
    assert found.bound == pytest.approx(float(3 * of_group + sum(alone_each)) / 6)


def test_weights_count_as_in_the_losses():
    heavy, _ = plan_for(weights=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    plain, trial = plan_for()
    assert (heavy.heaviest, plain.heaviest) == (pytest.approx(3.0), pytest.approx(1.0))
    assert heavy.violations["uplink"].tradeoff == pytest.approx(9 * plain.violations["uplink"].tradeoff)
    kept = trial.recorded["uplink_objective"][T // 2 :].mean()
    assert plain.residuals[1] == pytest.approx(kept)
    assert plain.convergence["client_residual"] == pytest.approx(
        4 * plain.estimates.smoothness.largest**2 * kept
    )


def test_a_trial_leaves_model_and_policy_as_they_were_and_sees_the_vectors():
    spec = small_spec({"policy": "full"}, COSTS["constant"], {}, iterations=T)
    problem = small_engine(spec)._problem
    before = problem.model.params.clone()
    trial = rehearse(problem, 8)
    assert (problem.model.params == before).all()
    assert trial.places[0][0] == 0
    assert (trial.places[0][1] == before).all()
    # Everything is sent, and ‖b‖² is that of the step alone; a whole message costs β + γ·d.
    engine = Engine(problem)
    energies = []

    def note(stage: str) -> None:
        if stage == "what to send":
            energies.append(float((engine.client_residual**2).sum(axis=1).max()))

    for _ in range(8):
        engine.step(note)
    problem.model.params.copy_(before)
    assert trial.watches["uplink"].energy == pytest.approx(max(energies), rel=1e-9)
    np.testing.assert_allclose(trial.watches["uplink"].first_whole, 0.52)
    assert trial.largest_cost["uplink"] == pytest.approx(0.52)


@pytest.mark.parametrize("policy", ["online", "full"])
def test_spending_goes_on_as_in_the_trial_but_budgets_are_kept(policy):
    control = {"policy": policy} | ({"initial_queue": 0.0, "tradeoff": 5.0} if policy == "online" else {})
    spec = small_spec(control, COSTS["constant"], BUDGETS["all"], iterations=T)
    problem = small_engine(spec)._problem
    setup, trial = problem.setup, rehearse(problem, 10)
    alone = compute_alone(setup, CLIENTS, problem.model.dim, T)
    found = spending_of(setup, scope_of(setup, "uplink", CLIENTS), alone, trial, T)
    recent = trial.spent["uplink"][5:].mean()
    assert recent > 0.05  # it begins over budget
    rest = 0.05 if policy == "online" else 0.52
    assert found.total == pytest.approx(trial.spent["uplink"].sum() + 30 * rest)
    assert found.each == pytest.approx(found.total / T)


class WithHorizon(Online):
    """A policy that shares out what is left of the run's budget."""

    uses_horizon = True


def test_a_policy_that_knows_the_horizon_spends_what_is_left():
    control = {"policy": "online", "initial_queue": 0.0, "tradeoff": 5.0}
    spec = small_spec(control, COSTS["constant"], BUDGETS["all"], iterations=T)
    problem = small_engine(spec)._problem
    setup, trial = replace(problem.setup, policy=WithHorizon()), rehearse(problem, 10)
    alone, scope = compute_alone(setup, CLIENTS, 1, T), scope_of(setup, "uplink", CLIENTS)
    over = spending_of(setup, scope, alone, trial, 20)
    assert trial.spent["uplink"].sum() > 20 * 0.05  # the budget of a run of 20 is gone already
    assert over.total == pytest.approx(trial.spent["uplink"].sum())
    within = spending_of(setup, scope, alone, trial, 1000 * T)
    assert within.total == pytest.approx(1000 * T * 0.05)


def test_no_limit_and_a_limited_memory_are_noted(monkeypatch):
    monkeypatch.setattr("flexfl.experiments.rehearsal._MOST_NUMBERS", 10 * CLIENTS)
    plan, _ = plan_for(budget={}, tried=0)
    assert plan.computing.iterations == 10
    assert (plan.computing.optimum, plan.computing.reached, plan.violations) == (1.0, 1.0, {})
    assert plan.plain()["spending"]["compute"]["budget"] is None
    assert plan.notes == (
        "computing was looked at for the first 10 of 40 iterations",
        "without a trial nothing is known of messages and residuals",
    )


def test_a_budget_by_the_clock_is_no_limit_of_a_plan():
    spec = small_spec({"policy": "full"}, COSTS["constant"], {}, iterations=T)
    problem = small_engine(spec)._problem
    clocked = replace(problem.setup, budgets={"uplink": Budget(np.full(CLIENTS, np.nan))})
    plan = plan_of(replace(problem, setup=clocked), spec, "clocked", None, None)
    assert plan.spending["uplink"].budget is None
    assert (plan.violations, plan.price) == ({}, {})
    assert "budget.uplink goes by the clock, and is not part of this plan" in plan.notes


def test_scopes_are_those_of_the_run():
    setup = build_setup(small_spec({"policy": "online"}, {}, BUDGETS["shared"]))
    assert scope_of(setup, "compute", CLIENTS).limits.tolist() == pytest.approx([0.2] * 3 + [0.3] * 3)
    assert scope_of(setup, "downlink", CLIENTS).limits == 0.02
    assert math.isinf(scope_of(setup, "uplink", CLIENTS).limits[2])


def test_make_plan_takes_a_spec():
    small = ["data.clients=2", "model.options.hidden=2", "train.iterations=5", "engine.threads=1"]
    small += ["data.partition=iid", "control.policy=online"]
    plan = make_plan(load_spec("quickstart", small), "mine", iterations_to_try=3, seconds_per_iteration=2.0)
    assert (plan.name, plan.trial, plan.pace.seconds) == ("mine", 3, 2.0)
    assert plan.largest_learning_rate == pytest.approx(
        1 / (4 * plan.estimates.smoothness.largest * plan.computing.worst)
    )
