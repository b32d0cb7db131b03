"""The theory as functions: inverses invert, the offline optimum is the optimum, the price keeps its bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize

from flexfl import theory
from flexfl.control import next_queue
from flexfl.errors import InputError

positive = st.floats(1e-3, 1e3)
QUICK = settings(max_examples=60, deadline=None)


# Theorem 2 ---------------------------------------------------------------------------------------


@given(V=positive, W=st.floats(0, 1e3), T=st.integers(1, 10_000), D=positive, B=positive)
def test_violation_bound_is_the_papers_expression(V, W, T, D, B):
    expected = math.sqrt(W**2 / T**2 + (2 * V * D + 2 * B) / T) - W / T
    assert theory.violation_bound(V, W, T, D, B) == pytest.approx(expected, rel=1e-6, abs=1e-9 * (1 + W / T))


@given(V=positive, T=st.integers(1, 10_000), D=positive, B=positive, nu=st.floats(1e-3, 10))
def test_initial_queue_is_just_large_enough(V, T, D, B, nu):
    W = float(theory.initial_queue_for(nu, V=V, T=T, D=D, B=B))
    if W > 0:
        assert_allclose(theory.violation_bound(V, W, T, D, B), nu, rtol=1e-6)
    else:
        assert theory.violation_bound(V, 0.0, T, D, B) <= nu * (1 + 1e-9)


@given(V=positive, W=st.floats(0, 10), D=positive, B=positive, nu=st.floats(1e-3, 10))
def test_iterations_are_just_enough(V, W, D, B, nu):
    T = float(theory.iterations_for(nu, V=V, W=W, D=D, B=B))
    assume(T > 0)
    assert_allclose(theory.violation_bound(V, W, T, D, B), nu, rtol=1e-6)


@given(W=st.floats(0, 10), T=st.integers(1, 10_000), D=positive, B=positive, nu=st.floats(1e-3, 10))
def test_tradeoff_is_just_small_enough(W, T, D, B, nu):
    V = float(theory.tradeoff_for(nu, W=W, T=T, D=D, B=B))
    if V > 1e-9 * B / D:
        assert_allclose(theory.violation_bound(V, W, T, D, B), nu, rtol=1e-5)
    elif V < 0:
        assert theory.violation_bound(0.0, W, T, D, B) >= nu * (1 - 1e-9)


@QUICK
@given(data=st.data(), V=st.floats(0.01, 1), W=st.floats(0, 5), floor=st.floats(0, 0.5))
def test_theorem_2_holds_with_any_floor(data, V, W, floor):
    """P3.1 with λ = αq, charged to a queue with a floor; D and B are those of the path."""
    budget = data.draw(st.floats(0.1, 2))
    alphas = data.draw(st.lists(st.floats(0.05, 3), min_size=1, max_size=40))
    Q = W = max(W, floor)
    spent, D, B = 0.0, 1.0, budget**2 / 2
    for T, alpha in enumerate(alphas, 1):
        q = 1.0 if Q * alpha <= V else math.sqrt(V / (Q * alpha))
        spent += alpha * q
        Q = float(next_queue(Q, alpha * q, budget, floor))
        D, B = max(D, 1 / q, alpha / budget), max(B, (alpha * q) ** 2 / 2)  # iv): λ(1/D) ≤ λ̃
        assert spent / T - budget <= theory.violation_bound(V, W, T, D, B) + 1e-12


# P2.1 offline --------------------------------------------------------------------------------------

costs = st.lists(st.floats(0, 5).map(lambda x: round(x, 3)), min_size=1, max_size=7)


@QUICK
@given(alpha=costs, budget=st.floats(0.05, 4))
def test_offline_plan_meets_the_conditions_of_optimality(alpha, budget):
    """Karush, Kuhn and Tucker: feasible, the budget spent or q = 1, one price for all that is thinned out."""
    alpha = np.array(alpha)
    plan = theory.offline_probs(alpha, budget)
    q = plan.probs
    assert ((q > 0) & (q <= 1)).all()
    spent = np.mean(alpha * q)
    assert spent <= budget * (1 + 1e-9)
    assert plan.value == pytest.approx(np.mean(1 / q))
    if plan.price == 0:
        assert (q == 1).all()
        return
    assert spent == pytest.approx(budget, rel=1e-9)
    gradient = -1 / q**2 + plan.price * alpha  # of the Lagrangian: 0 inside, ≤ 0 at the bound
    thinned = q < 1 - 1e-9
    assert_allclose(gradient[thinned] * q[thinned] ** 2, 0.0, atol=1e-9)
    assert (gradient[~thinned] <= 1e-6).all()


@QUICK
@given(alpha=costs, budget=st.floats(0.2, 2))
def test_offline_plan_agrees_with_a_solver(alpha, budget):
    alpha = np.array(alpha)
    plan = theory.offline_probs(alpha, budget)
    found = minimize(
        lambda q: np.mean(1 / q),
        np.full(len(alpha), min(1.0, 0.9 * budget / max(budget, alpha.max()))),
        jac=lambda q: -1 / q**2 / len(q),
        bounds=[(1e-3, 1)] * len(alpha),
        constraints={
            "type": "ineq",
            "fun": lambda q: budget - np.mean(alpha * q),
            "jac": lambda q: -alpha / len(q),
        },
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assume(found.success and found.fun < 1e2)
    assert plan.value == pytest.approx(found.fun, rel=1e-4)


@pytest.mark.parametrize("alpha", [(0.2, 1.0, 3.0), (1.0, 1.0, 1.0), (0.0, 2.0, 2.0)])
@pytest.mark.parametrize("budget", [0.1, 0.5, 1.2])
def test_no_plan_on_a_grid_is_better(alpha, budget):
    grid = np.linspace(0.01, 1, 100)
    best = math.inf
    for q in itertools.product(grid[::3], repeat=2):
        left = 3 * budget - alpha[0] * q[0] - alpha[1] * q[1]
        last = min(1.0, left / alpha[2])  # the rest of the budget
        if last > 0:
            best = min(best, (1 / q[0] + 1 / q[1] + 1 / last) / 3)
    plan = theory.offline_probs(np.array(alpha), budget)
    assert plan.value <= best + 1e-12
    assert plan.value >= best * 0.9  # and the grid comes close


@QUICK
@given(data=st.data(), budget=st.floats(0.2, 2))
def test_randomised_optimum_on_a_grid_agrees_with_linear_programming(data, budget):
    T, grid = data.draw(st.integers(1, 4)), np.array([0.1, 0.3, 0.7, 1.0])
    table = np.array(data.draw(st.lists(st.floats(0, 3), min_size=4 * T, max_size=4 * T))).reshape(T, 4)
    found = linprog(
        np.tile(1 / grid, T) / T,
        A_ub=table.reshape(1, -1) / T,
        b_ub=[budget],
        A_eq=np.kron(np.eye(T), np.ones(4)),
        b_eq=np.ones(T),
        bounds=(0, 1),
    )
    value = theory.offline_optimum(table, grid, budget)
    if found.status == 2:
        assert value == math.inf or np.mean(table.min(axis=1)) > budget * (1 - 1e-9)
    else:
        assert value == pytest.approx(found.fun, rel=1e-6)


def test_a_fine_grid_gives_what_the_closed_form_gives():
    alpha, grid = np.random.default_rng(1).uniform(0, 1, 50), np.linspace(0.001, 1, 2000)
    exact = theory.offline_probs(alpha, 0.25).value
    assert theory.offline_optimum(alpha[:, None] * grid, grid, 0.25) == pytest.approx(exact, rel=1e-4)


def test_what_no_plan_can_be_made_for_is_refused():
    with pytest.raises(InputError, match="costs must be finite and ≥ 0") as error:
        theory.offline_probs(np.array([1.0, -2.0]), 0.0)
    assert "budget must be > 0" in str(error.value)


# The price -----------------------------------------------------------------------------------------


@QUICK
@given(
    spent=st.lists(st.floats(0, 10), min_size=1, max_size=60),
    budget=st.floats(0.1, 5),
    step=st.floats(0.001, 0.5),
    first=st.floats(-5, 5),
    depth=st.floats(0, 3),
)
def test_the_violation_telescopes(spent, budget, step, first, depth):
    free = held = first
    for cost in spent:
        free += step * (cost - budget) / budget
        held = max(first - depth, held + step * (cost - budget) / budget)
    T, violation = len(spent), np.mean(spent) / budget - 1
    exact = theory.price_violation(math.exp(first), math.exp(free), step=step, iterations=T)
    assert_allclose(exact, violation, atol=1e-9)
    above = theory.price_violation(math.exp(first), math.exp(held), step=step, iterations=T)
    assert above >= violation - 1e-9


def best_message(b: np.ndarray, price: float, beta: float, gamma: float) -> float:
    """The cost of the message that minimises ‖b − v‖² + λ·(β + γk), by trying every k; 0 for none."""
    gains = np.cumsum(np.sort(b**2)[::-1])
    totals = price * (beta + gamma * np.arange(1, len(b) + 1)) - gains
    k = int(np.argmin(totals))
    return beta + gamma * (k + 1) if totals[k] < 0 else 0.0


@QUICK
@given(
    seed=st.integers(0, 2**32),
    step=st.floats(0.01, 0.5),
    beta=st.floats(0.01, 2),
    gamma=st.floats(0.01, 1),
    budget=st.floats(0.05, 3),
    first=st.floats(-8, 3),
)
def test_the_price_of_sending_stays_below_its_bound(seed, step, beta, gamma, budget, first):
    """Error feedback on random steps, at a price: λ_T and the violation are below what is said before."""
    rng, dim, log = np.random.default_rng(seed), 6, first
    b, spent, costs, energies, prices = np.zeros(dim), [], [], [], []
    for _ in range(60):
        b = b + rng.normal(size=dim) * rng.choice([0.1, 1.0])
        energies.append(float(b @ b))
        weight = rng.uniform(0.5, 1.5)  # costs vary in time
        costs.append(weight * (beta + gamma * dim))
        cost = best_message(b, math.exp(log), weight * beta, weight * gamma)
        k = round((cost / weight - beta) / gamma) if cost else 0
        b[np.argsort(-np.abs(b))[:k]] = 0.0
        spent.append(cost)
        log += step * (cost - budget) / budget
        prices.append(math.exp(log))
    highest = theory.highest_send_price(
        math.exp(first), energy=max(energies), budget=budget, largest=max(costs), step=step
    )
    assert max(prices) <= highest * (1 + 1e-9)
    bound = theory.price_violation_bound(math.exp(first), highest, step=step, iterations=60)
    assert np.mean(spent) / budget - 1 <= bound + 1e-9


@QUICK
@given(
    alphas=st.lists(st.floats(0.01, 5), min_size=1, max_size=80),
    budget=st.floats(0.05, 4),
    step=st.floats(0.01, 0.5),
    first=st.floats(-6, 4),
)
def test_the_price_of_computing_stays_below_its_bound(alphas, budget, step, first):
    log, prices, spent = first, [], []
    for alpha in alphas:
        q = min(1.0, 1.0 / math.sqrt(math.exp(log) * alpha))
        spent.append(alpha * q)
        log += step * (alpha * q - budget) / budget
        prices.append(math.exp(log))
    highest = theory.highest_compute_price(math.exp(first), largest=max(alphas), budget=budget, step=step)
    assert max(prices) <= highest * (1 + 1e-9)
    bound = theory.price_violation_bound(math.exp(first), highest, step=step, iterations=len(alphas))
    assert np.mean(spent) / budget - 1 <= bound + 1e-9


def test_a_message_far_above_the_budget_has_no_bound():
    assert theory.highest_send_price(1.0, energy=1.0, budget=1e-6, largest=1.0, step=0.5) == math.inf
    assert theory.highest_compute_price(1.0, budget=1e-6, largest=1.0, step=0.5) == math.inf


def test_the_bounds_of_prices_are_reached():
    """Of one dear iteration after a cheap price, each maximum is what the recursion comes to."""
    step, alpha, budget = 0.1, 4.0, 0.5
    from_below = 1 / alpha * (1 - 1e-9)  # q = 1, the whole α is spent
    after = from_below * math.exp(step * (alpha / budget - 1))
    assert after <= theory.highest_compute_price(from_below, largest=alpha, budget=budget, step=step)
    steep = theory.highest_compute_price(from_below, largest=alpha, budget=budget, step=1.0)
    assert steep == pytest.approx(math.exp(alpha / budget - 1) / alpha, rel=1e-6)
    phi, D = 3.0, 2.0
    first = D / phi * (1 - 1e-9)  # a message of cost φ is just worth its price
    reached = first * math.exp(1.0 * (phi / budget - 1))
    bound = theory.highest_send_price(first, energy=D, budget=budget, largest=phi, step=1.0)
    assert bound == pytest.approx(reached, rel=1e-6)
