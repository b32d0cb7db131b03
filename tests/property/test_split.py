"""What is sent and what is kept: nothing lost, exactly k, the largest, lowest index first."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfl.algorithm import client
from flexfl.algorithm.reference import _largest
from flexfl.compress import DenseMagnitudes, topk, topk_mask
from flexfl.sim.selection import Residuals
from strategies import rows, vectors


@given(rows(), st.data())
def test_split_loses_nothing_and_sends_exactly_k(b, data):
    k = np.array([data.draw(st.integers(0, b.shape[1])) for _ in b])
    v = topk(b, k)
    e = client.keep(b, v)
    assert np.array_equal(v + e, b)
    assert np.all((v == 0) | (e == 0))
    assert np.array_equal(topk_mask(b, k).sum(axis=1), k)


@given(vectors(), st.data())
def test_topk_equals_a_full_stable_sort(b, data):
    k = data.draw(st.integers(0, len(b)))
    assert np.array_equal(topk(b, k), _largest(b, k))


def test_ties_go_to_the_lowest_index():
    b = np.array([1.0, -2.0, 2.0, 2.0, -1.0])
    assert topk_mask(b, 2).tolist() == [False, True, True, False, False]
    assert topk_mask(b, 4).tolist() == [True, True, True, True, False]


@given(vectors(), st.data())
def test_no_other_choice_of_k_components_leaves_less_behind(b, data):
    k = data.draw(st.integers(0, len(b)))
    other = data.draw(st.permutations(range(len(b))))[:k]
    left = np.sum((b - topk(b, k)) ** 2)
    alternative = b.copy()
    alternative[other] = 0
    assert left <= np.sum(alternative**2) + 1e-9


@given(rows(), st.floats(0, 3))
def test_magnitudes_say_what_a_plain_count_says(b, cut):
    for view in (DenseMagnitudes(b), Residuals(b.copy()), Residuals(b.astype(np.float32))):
        count, energy = view.above(cut)
        chosen = np.abs(b) > cut
        assert np.array_equal(count, chosen.sum(axis=1))
        np.testing.assert_allclose(energy, np.sum(b**2 * chosen, axis=1), rtol=1e-12)
        sums = view.energies()
        assert sums.shape == (b.shape[0], b.shape[1] + 1)
        np.testing.assert_allclose(sums[:, -1], np.sum(b**2, axis=1), rtol=1e-12)
        assert np.all(np.diff(sums, axis=1) >= 0)
        assert np.all(np.diff(sums, n=2, axis=1) <= 1e-9)


@given(rows(dtype=np.float32), st.booleans(), st.data())
def test_kernels_send_what_topk_sends(b, ask_first, data):
    """Both ways of the engine, by a known threshold and by selection, equal the plain top-k."""
    weights = np.linspace(0.1, 1.0, len(b))
    residuals, total = b.copy(), np.zeros(b.shape[1])
    view = Residuals(residuals)
    if ask_first:
        k, _ = view.above(data.draw(st.floats(0, 3)))
    else:
        k = np.array([data.draw(st.integers(0, b.shape[1])) for _ in b])
    kept = view.send(k, weights, total)
    v = topk(b, k)
    assert np.array_equal(residuals, b - v)
    np.testing.assert_allclose(total, weights @ v.astype(np.float64), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kept, np.sum((b - v).astype(np.float64) ** 2, axis=1), rtol=1e-9, atol=1e-9)
