"""P3.1–P3.3: no decision beats the closed forms, nor the search, for any cost."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from examples.own_compressor import OneMagnitude
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flexfl.compress import PlainVectors, RoundedTopK, TopK, topk_mask
from flexfl.control import objective as objectives
from flexfl.control import online, search
from flexfl.costs import Affine, Linear, Staircase
from flexfl.sim.plain_residuals import PlainResiduals
from flexfl.sim.residuals import Residuals
from flexfl.streams import Entities, Streams
from strategies import positive, rows, vectors

QUEUE = st.one_of(st.just(0.0), positive())
GRID = np.concatenate([np.geomspace(1e-6, 1, 4000), np.linspace(1e-3, 1, 4000)])


def choices(b, compressor=None):
    """What a rule may ask of b, by the plain path."""
    who = Entities.all_clients(len(b)) if b.ndim > 1 else Entities.one_client(0, 1)
    return PlainVectors(b, compressor or TopK(), Streams(1).moment("uplink", 0, b.shape[-1], who))


def every_k(b, V, Phi, cost):
    """The objective of P3.2 for every k from 0 to the non-zero components, by plain sums."""
    squares = np.sort(b[b != 0] ** 2)[::-1]
    return np.array([V * squares[k:].sum() + Phi * float(cost(k)) for k in range(len(squares) + 1)])


@given(positive(), QUEUE, st.one_of(st.just(0.0), positive()))
def test_compute_prob_is_never_beaten(V, Lam, alpha):
    q = float(online.compute_prob(V, Lam, alpha))
    assert 0 < q <= 1
    best = V / q + Lam * alpha * q
    assert best <= np.min(V / GRID + Lam * alpha * GRID) * (1 + 1e-12)


@pytest.mark.parametrize(("Lam", "alpha"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_free_iteration_is_used(Lam, alpha):
    assert online.compute_prob(0.02, Lam, alpha) == 1.0


@given(vectors(), positive(), QUEUE, st.one_of(st.just(0.0), positive()), st.one_of(st.just(0.0), positive()))
def test_num_sent_is_never_beaten(b, V, Phi, beta, gamma):
    k = int(online.num_sent(V, Phi, beta, gamma, choices(b)))
    objective = every_k(b, V, Phi, Affine(np.asarray(beta), np.asarray(gamma)))
    assert 0 <= k < len(objective)
    assert objective[k] <= objective.min() + 1e-9 * (1 + abs(objective.min()))


def test_the_papers_j_star_sends_one_too_many():
    """V·b² = 4, 1 against Φγ = 2: j* = 2 is the first that does not help; the best k is j* − 1."""
    b = np.array([2.0, 1.0])
    V, Phi, beta, gamma = 1.0, 1.0, 0.0, 2.0
    j_star = next(j for j in (1, 2) if Phi * gamma - V * np.sort(b)[::-1][j - 1] ** 2 >= 0)
    k = int(online.num_sent(V, Phi, beta, gamma, choices(b)))
    assert (k, j_star) == (1, 2)
    objective = every_k(b, V, Phi, Affine(np.asarray(beta), np.asarray(gamma)))
    assert objective[k] < objective[j_star]


@given(rows(), positive(), QUEUE, positive(), positive())
def test_search_equals_the_closed_form_over_k(b, V, Phi, beta, gamma):
    cost = Affine(np.asarray(beta), np.asarray(gamma))
    by_search = search.amounts(V, Phi, cost, choices(b))
    by_formula = online.num_sent(V, Phi, beta, gamma, choices(b))
    for row, k, other in zip(b, by_search, by_formula, strict=True):
        # Where two k are equally good, either is right: their objectives agree.
        objective = every_k(row, V, Phi, cost)
        assert objective[k] == pytest.approx(objective[other], rel=1e-9, abs=1e-9)


@given(positive(), positive(), positive())
def test_search_equals_the_closed_form_over_q(V, Lam, alpha):
    q = float(search.compute_prob(V, Lam, Linear(np.asarray(alpha))))
    assert q == pytest.approx(float(online.compute_prob(V, Lam, alpha)), rel=1e-6)


@given(vectors(12), positive(), QUEUE, st.data())
def test_search_is_exact_for_any_cost_of_k(b, V, Phi, data):
    """Costs drawn at random, so neither monotone nor convex."""
    prices = np.array([0.0] + [data.draw(st.floats(0, 10)) for _ in b])
    k = int(search.amounts(V, Phi, lambda k: prices[np.asarray(k)], choices(b)))
    objective = every_k(b, V, Phi, lambda k: prices[k])
    assert objective[k] == pytest.approx(objective.min(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("make", [choices, Residuals], ids=["plain", "fused"])
def test_a_staircase_for_several_at_once(make):
    b = np.random.default_rng(1).normal(size=(3, 50))
    cost = Staircase(np.array([0.5, 1.0, 2.0]), np.asarray(7.0))
    whole = search.amounts(1.0, 1.0, cost, make(b))
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


@pytest.mark.parametrize("name", COSTS_OF_Q)
@given(V=positive(1e-3, 10), Lam=QUEUE, least=st.floats(0.01, 1))
def test_search_over_q_from_a_bound_on(name, V, Lam, least):
    cost, grid = COSTS_OF_Q[name], np.maximum(GRID, least)
    q = float(search.compute_prob(V, Lam, cost, least))
    assert least <= q <= 1
    best, on_grid = V / q + Lam * cost(q), np.min(V / grid + Lam * cost(grid))
    assert best <= on_grid + 1e-9 * abs(on_grid) + (Lam * 1e-3 + V * 1e-2 if name == "steps" else 0)


def test_search_over_q_for_many_entities_at_once():
    V, Lam = 0.02, np.array([0.0, 0.5, 3.0, 40.0])
    alpha = np.array([0.3, 0.9, 0.1, 1.0])
    np.testing.assert_allclose(
        search.compute_prob(V, Lam, Linear(alpha)), online.compute_prob(V, Lam, alpha), rtol=1e-6
    )


# What the search promises, and keeps --------------------------------------------------------------


@given(rows(dtype=np.float32), positive(), QUEUE, positive(), st.integers(1, 9))
def test_bins_find_what_trying_every_k_finds(b, V, Phi, price, size):
    """The engine's way for costs that never fall: bins of magnitude, most of them ruled out by a bound."""
    cost = Staircase(np.asarray(price), np.asarray(float(size)))
    for row, k in zip(b, search.amounts(V, Phi, cost, Residuals(b.copy())), strict=True):
        objective = every_k(row.astype(np.float64), V, Phi, cost)
        assert objective[k] <= objective.min() + 1e-9 * (1 + abs(objective.min()))


class Rising:
    """A cost that never falls, by a table for each entity, (D + 1, N)."""

    monotone = True

    def __init__(self, table):
        self.table = table

    def __call__(self, k):
        k = np.asarray(k)
        return self.table[k, np.arange(self.table.shape[1])] if k.ndim else self.table[k]


SIZES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1.0 + 2**-23, 1e-45, 1e-30, 300.0]), st.floats(-10, 10, width=32)
)


@pytest.mark.parametrize(
    "make", [Residuals, lambda b: Residuals(torch.from_numpy(b))], ids=["numba", "torch"]
)
@given(data=st.data())
def test_rows_that_change_are_searched_like_by_trying_every_k(make, data):
    """Any cost that never falls, over iterations: what was remembered of a row never hides its best k."""
    shape = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 40))
    b = data.draw(hnp.arrays(np.float32, shape, elements=SIZES))
    view = make(b)
    for _ in range(3):
        V, Phi = data.draw(positive()), np.array([data.draw(QUEUE) for _ in b])
        steps = hnp.arrays(float, (shape[1], shape[0]), elements=st.sampled_from([0.0, 0.0, 0.1, 1.0, 9.0]))
        table = np.concatenate([np.zeros((1, shape[0])), np.cumsum(data.draw(steps), axis=0)])
        k = search.amounts(V, Phi, Rising(table), view)
        for row, price, queue, found in zip(b, table.T, Phi, k, strict=True):
            objective = every_k(row.astype(np.float64), V, queue, lambda k, p=price: p[k])
            least = objective.min() + 1e-9 * objective.min()
            assert objective[found] <= least
            # No smaller k is clearly as good: equal objectives go to the smallest k.
            assert found == 0 or objective[:found].min() >= objective[found] * (1 - 1e-9)
        view.expect(0.0)
        kept, total = b.copy(), np.zeros(shape[1], np.float32)
        assert np.array_equal(view.components(k), k)
        view.take(k).add_to(total if make is Residuals else torch.from_numpy(total))
        assert np.array_equal(b, np.where(topk_mask(kept, k), 0, kept))
        np.testing.assert_allclose(view.energy, np.square(b, dtype=float).sum(axis=1), rtol=1e-6, atol=1e-9)
        changed = np.flatnonzero([data.draw(st.booleans()) for _ in b])
        grads = data.draw(
            hnp.arrays(np.float32, (len(changed), shape[1]), elements=st.floats(-1, 1, width=32))
        )
        view.entering(changed)
        into = grads if make is Residuals else torch.from_numpy(grads)
        view.add(changed, 0, np.ones(len(changed), np.float32), into)
        view.entered(changed)


def test_equal_objectives_go_to_the_smallest_amount():
    """Free components that are not there, and one that is worth exactly what it costs."""
    b = np.array([[2.0, 1.0, 1.0, 0.0], [3.0, 0.0, 0.0, 0.0]], np.float32)
    cost = Rising(np.array([[0.0, 1.0, 2.0, 3.0, 3.0]] * 2).T)
    for make in (choices, Residuals):
        assert search.amounts(1.0, 1.0, cost, make(b.copy())).tolist() == [1, 1]


def test_the_search_keeps_to_its_memory(monkeypatch):
    """Rows are counted and sorted a few at a time; the answer does not depend on how many."""
    b = np.random.default_rng(1).normal(size=(7, 500)).astype(np.float32)
    cost = Staircase(np.full(7, 0.7), np.asarray(30.0))
    whole = search.amounts(1.0, 1.0, cost, Residuals(b.copy()))
    assert len(set(whole.tolist())) > 1
    monkeypatch.setattr("flexfl.sim.residuals._COUNTED", 2)
    monkeypatch.setattr("flexfl.sim.residuals._COPIED", 1000)
    monkeypatch.setattr("flexfl.sim.bins._SCANNED", 40)
    monkeypatch.setattr(search, "AT_ONCE", 20)
    for vectors_ in (b.copy(), torch.from_numpy(b.copy())):
        assert np.array_equal(search.amounts(1.0, 1.0, cost, Residuals(vectors_)), whole)


@given(rows(dtype=np.float32), positive(), positive(), positive(), positive())
def test_no_compressor_sends_where_exact_values_do_not_pay(b, V, Phi, beta, gamma):
    """The bound by which a search leaves vectors out: all amounts of all vectors find the same."""
    cost = Affine(np.asarray(beta), np.asarray(gamma))
    for compressor in (RoundedTopK("bfloat16"), OneMagnitude(step=2)):
        vectors_ = PlainResiduals(b.copy(), compressor)
        vectors_.expect(0.0, Streams(1).moment("uplink", 0, b.shape[1], Entities.all_clients(len(b))))
        for n, amount in enumerate(search.amounts(V, Phi, cost, vectors_)):
            offers = compressor.offers(b[n], np.random.default_rng)
            objective = V * offers.kept + Phi * cost(offers.components)
            assert objective[amount] <= objective.min() + 1e-9 * (1 + objective.min())


@pytest.mark.parametrize("make", [choices, Residuals], ids=["plain", "fused"])
def test_small_components_beside_a_large_one_are_seen(make):
    """Sums from the largest down would lose them: 10⁹² + 10⁻⁴·k is 10¹⁸ for any k."""
    b = np.append(1e9, np.full(1000, 0.01))[None]
    cost = Staircase(np.asarray(0.02), np.asarray(1001.0))
    k = int(search.amounts(1.0, 3.0, cost, make(b))[0])
    assert k == 1001  # 0.06; with k = 1 it would be 0.06 + 0.1


@given(vectors(12), positive(), QUEUE, st.sampled_from(["float16", "bfloat16"]), positive(), positive())
def test_rounded_values_are_chosen_exactly(b, V, Phi, values, beta, gamma):
    """What rounding leaves behind counts: no k beats the closed form, nor the search."""
    compressor, cost = RoundedTopK(values), Affine(np.asarray(beta), np.asarray(gamma))
    offers = compressor.offers(b, np.random.default_rng)
    objective = V * offers.kept + Phi * cost(offers.components)
    least = objective.min() + 1e-9 * (1 + abs(objective.min()))
    assert objective[int(online.num_sent(V, Phi, beta, gamma, choices(b, compressor)))] <= least
    assert objective[int(search.amounts(V, Phi, cost, choices(b, compressor)))] <= least


def test_a_window_of_q_that_is_narrow():
    """2·10⁻⁴ wide: the even grid has a point in every 1/8192."""

    def cost(q):
        q = np.asarray(q)
        return np.where((q > 0.6171) & (q < 0.6173), 0.01, 5.0)

    q = float(search.compute_prob(0.02, 1.0, cost))
    assert 0.02 / q + cost(q) < 0.06


def test_breakpoints_that_a_cost_names():
    class Slit:
        breakpoints = np.array([0.123456789])

        def __call__(self, q):
            return np.where(np.asarray(q) == 0.123456789, 0.0, 5.0)

    assert float(search.compute_prob(0.02, 1.0, Slit())) == 0.123456789


@given(V=positive(1e-3, 10), Lam=positive(), jumps=st.lists(st.floats(1e-5, 1), min_size=1, max_size=5))
def test_a_cost_of_q_that_never_falls_is_met_within_its_promise(V, Lam, jumps):
    """Jumps anywhere: the best q is 1 or just below a jump."""
    places = np.sort(jumps)

    def cost(q):
        return np.searchsorted(places, q, side="left").astype(float) + 0.1 * np.asarray(q)

    q = float(search.compute_prob(V, Lam, cost))
    best = min(V / p + Lam * cost(p) for p in [*places, 1.0])
    assert V / q + Lam * cost(q) <= best * 1.0035


@pytest.mark.parametrize("places", [[0, 1, 2], [2, 0, 1], [2, 0], [1]], ids=str)
def test_some_of_a_cost_for_many(places, monkeypatch):
    monkeypatch.setattr(objectives, "AT_ONCE", 20)  # a few amounts at a time
    some, amounts = np.array(places), np.random.default_rng(0).integers(0, 40, (5, 4, len(places)))
    prices = np.array([0.5, 1.0, 2.0])
    stairs = Staircase(prices, np.asarray(7.0))
    for cost in (stairs, lambda k: stairs(k)):
        found = objectives.cost_of_some(cost, some, (3,))(amounts)
        assert np.array_equal(found, prices[some] * np.ceil(amounts / 7))
    one = Staircase(np.asarray(0.5), np.asarray(7.0))
    assert np.array_equal(
        objectives.cost_of_some(one, np.array([0]), ())(amounts[..., :1]), one(amounts[..., :1])
    )


def test_a_table_of_as_many_prices_as_clients_stays_a_table():
    """An array in an own cost is what its author says, not one number for each client."""

    @dataclass(frozen=True)
    class Tiers:
        prices: np.ndarray
        extra: float = field(default=0.0, init=False)

        def __call__(self, amount):
            return self.prices[np.minimum(np.asarray(amount) // 10, 2)] * (np.asarray(amount) > 0)

    b = np.random.default_rng(3).normal(size=(3, 30))
    b[1] *= 1e-3  # so that not all are looked at
    cost = Tiers(np.array([0.5, 1.0, 30.0]))
    found = search.amounts(1.0, 1.0, cost, choices(b))
    for row, k in zip(b, found, strict=True):
        objective = every_k(row, 1.0, 1.0, cost)
        assert objective[k] == pytest.approx(objective.min())
