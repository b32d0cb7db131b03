"""P3.1–P3.3: no decision beats the closed forms, nor the search, for any cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.compress import DenseMagnitudes
from flexfl.control import closed_form, search
from flexfl.costs import Affine, Linear, Staircase
from strategies import positive, rows, vectors

QUEUE = st.one_of(st.just(0.0), positive())
GRID = np.concatenate([np.geomspace(1e-6, 1, 4000), np.linspace(1e-3, 1, 4000)])


def every_k(b, V, Phi, cost):
    """The objective of P3.2 for every k from 0 to the non-zero components, by plain sums."""
    squares = np.sort(b[b != 0] ** 2)[::-1]
    return np.array([V * squares[k:].sum() + Phi * float(cost(k)) for k in range(len(squares) + 1)])


@given(positive(), QUEUE, st.one_of(st.just(0.0), positive()))
def test_compute_prob_is_never_beaten(V, Lam, alpha):
    q = float(closed_form.compute_prob(V, Lam, alpha))
    assert 0 < q <= 1
    best = V / q + Lam * alpha * q
    assert best <= np.min(V / GRID + Lam * alpha * GRID) * (1 + 1e-12)


@pytest.mark.parametrize(("Lam", "alpha"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_free_iteration_is_used(Lam, alpha):
    assert closed_form.compute_prob(0.02, Lam, alpha) == 1.0


@given(vectors(), positive(), QUEUE, st.one_of(st.just(0.0), positive()), st.one_of(st.just(0.0), positive()))
def test_num_sent_is_never_beaten(b, V, Phi, beta, gamma):
    k = int(closed_form.num_sent(V, Phi, beta, gamma, DenseMagnitudes(b)))
    objective = every_k(b, V, Phi, Affine(np.asarray(beta), np.asarray(gamma)))
    assert 0 <= k < len(objective)
    assert objective[k] <= objective.min() + 1e-9 * (1 + abs(objective.min()))


def test_the_papers_j_star_sends_one_too_many():
    """V·b² = 4, 1 against Φγ = 2: j* = 2 is the first that does not help; the best k is j* − 1."""
    b = np.array([2.0, 1.0])
    V, Phi, beta, gamma = 1.0, 1.0, 0.0, 2.0
    j_star = next(j for j in (1, 2) if Phi * gamma - V * np.sort(b)[::-1][j - 1] ** 2 >= 0)
    k = int(closed_form.num_sent(V, Phi, beta, gamma, DenseMagnitudes(b)))
    assert (k, j_star) == (1, 2)
    objective = every_k(b, V, Phi, Affine(np.asarray(beta), np.asarray(gamma)))
    assert objective[k] < objective[j_star]


@given(rows(), positive(), QUEUE, positive(), positive())
def test_search_equals_the_closed_form_over_k(b, V, Phi, beta, gamma):
    cost = Affine(np.asarray(beta), np.asarray(gamma))
    by_search = search.num_sent(V, Phi, cost, DenseMagnitudes(b))
    by_formula = closed_form.num_sent(V, Phi, beta, gamma, DenseMagnitudes(b))
    for row, k, other in zip(b, by_search, by_formula, strict=True):
        # Where two k are equally good, either is right: their objectives agree.
        objective = every_k(row, V, Phi, cost)
        assert objective[k] == pytest.approx(objective[other], rel=1e-9, abs=1e-9)


@given(positive(), positive(), positive())
def test_search_equals_the_closed_form_over_q(V, Lam, alpha):
    q = float(search.compute_prob(V, Lam, Linear(np.asarray(alpha))))
    assert q == pytest.approx(float(closed_form.compute_prob(V, Lam, alpha)), rel=1e-6)


@given(vectors(12), positive(), QUEUE, st.data())
def test_search_is_exact_for_any_cost_of_k(b, V, Phi, data):
    """Costs drawn at random, so neither monotone nor convex."""
    prices = np.array([0.0] + [data.draw(st.floats(0, 10)) for _ in b])
    k = int(search.num_sent(V, Phi, lambda k: prices[np.asarray(k)], DenseMagnitudes(b)))
    objective = every_k(b, V, Phi, lambda k: prices[k])
    assert objective[k] == pytest.approx(objective.min(), rel=1e-9, abs=1e-9)


def test_search_over_k_is_exact_beyond_one_chunk(monkeypatch):
    b = np.random.default_rng(1).normal(size=(3, 50))
    cost = Staircase(np.array([0.5, 1.0, 2.0]), np.asarray(7.0))
    whole = search.num_sent(1.0, 1.0, cost, DenseMagnitudes(b))
    monkeypatch.setattr(search, "_CHUNK", 8)
    assert np.array_equal(search.num_sent(1.0, 1.0, cost, DenseMagnitudes(b)), whole)
    for row, price, k in zip(b, cost.per_packet, whole, strict=True):
        assert k == np.argmin(every_k(row, 1.0, 1.0, lambda k, p=price: p * np.ceil(k / 7)))


COSTS_OF_Q = {
    "square": lambda q: 3 * q**2,
    "root": lambda q: 2 * np.sqrt(q),
    "falling": lambda q: 1 - q,
    "hump": lambda q: np.sin(3 * np.pi * np.asarray(q)) + 1,
    "steps": lambda q: np.ceil(4 * np.asarray(q)) / 4,
    "linear": lambda q: 5 * np.asarray(q),
}


@pytest.mark.parametrize("name", COSTS_OF_Q)
@given(V=positive(1e-3, 10), Lam=QUEUE)
def test_search_over_q_is_never_beaten_by_a_fine_grid(name, V, Lam):
    cost = COSTS_OF_Q[name]
    q = float(search.compute_prob(V, Lam, cost))
    assert 0 < q <= 1
    best = V / q + Lam * cost(q)
    on_grid = np.min(V / GRID + Lam * cost(GRID))
    # Steps are met to within a cell of the search's own grid.
    assert best <= on_grid + 1e-9 * abs(on_grid) + (Lam * 1e-3 + V * 1e-2 if name == "steps" else 0)


def test_search_over_q_for_many_entities_at_once():
    V, Lam = 0.02, np.array([0.0, 0.5, 3.0, 40.0])
    alpha = np.array([0.3, 0.9, 0.1, 1.0])
    np.testing.assert_allclose(
        search.compute_prob(V, Lam, Linear(alpha)), closed_form.compute_prob(V, Lam, alpha), rtol=1e-6
    )
