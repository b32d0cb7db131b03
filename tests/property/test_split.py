"""What is sent and what is kept: nothing lost, exactly k, the largest, lowest index first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flexfl.compress import PlainVectors, RoundedTopK, TopK, topk_mask
from flexfl.control import online
from flexfl.sim import kernels
from flexfl.sim.plain_residuals import PlainResiduals
from flexfl.sim.residuals import Residuals
from flexfl.streams import Entities, Streams
from strategies import rows, vectors


def moment(b):
    who = Entities.all_clients(len(b)) if b.ndim > 1 else Entities.one_client(0, 1)
    return Streams(1).moment("uplink", 0, b.shape[-1], who)


def plain(b):
    return PlainVectors(b, TopK(), moment(b))


def by_sorting(vector, k):
    """The k components of largest magnitude, lowest index first among equals; by a full stable sort."""
    order = np.argsort(-np.abs(vector), kind="stable")[:k]
    message = np.zeros_like(vector)
    message[order] = vector[order]
    return message


def topk(b, k):
    return np.where(topk_mask(b, k), b, np.zeros((), b.dtype))


def leaves(view, k, weights, total):
    """Send k of each row, and return ‖b − v‖²."""
    view.take(k).add_to(total, weights)
    return view.energy


@given(rows(), st.data())
def test_split_loses_nothing_and_sends_exactly_k(b, data):
    k = np.array([data.draw(st.integers(0, b.shape[1])) for _ in b])
    v = topk(b, k)
    e = b - v
    assert np.array_equal(v + e, b)
    assert np.all((v == 0) | (e == 0))
    assert np.array_equal(topk_mask(b, k).sum(axis=1), k)


@given(vectors(), st.data())
def test_topk_equals_a_full_stable_sort(b, data):
    k = data.draw(st.integers(0, len(b)))
    assert np.array_equal(topk(b, k), by_sorting(b, k))
    message = TopK().compress(b, k, np.random.default_rng)
    assert np.array_equal(message.dense(), by_sorting(b, k))


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
    for view in (plain(b), Residuals(b.copy()), Residuals(b.astype(np.float32))):
        count, energy = view.above(cut)
        chosen = np.abs(b) > cut
        assert np.array_equal(count, chosen.sum(axis=1))
        np.testing.assert_allclose(energy, np.sum(b**2 * chosen, axis=1), rtol=1e-12)
        for n, row in enumerate(b):
            kept = view.offers(n).kept
            squares = np.sort(np.square(row[row != 0], dtype=np.float64))[::-1]
            expected = [squares[k:].sum() for k in range(len(squares) + 1)]
            np.testing.assert_allclose(kept, expected, rtol=1e-6, atol=1e-12)


def wide_rows(dtype, max_rows=4, max_dim=40):
    """Numbers of all sizes, with ties, zeros and denormals."""
    tiny = float(np.finfo(dtype).smallest_subnormal)
    pool = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + float(np.finfo(dtype).eps), 1.5, -3.0, tiny, 1e9])
    usual = st.floats(-10, 10, width=32)
    shape = st.tuples(st.integers(1, max_rows), st.integers(1, max_dim))
    return hnp.arrays(dtype, shape, elements=pool | usual)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_bins_have_the_sums_of_a_sort_at_their_edges_and_inside(dtype, data):
    b = data.draw(wide_rows(dtype))
    reach = np.array([data.draw(st.integers(1, b.shape[1])) for _ in b])
    [bins] = Residuals(b.copy()).binned(np.arange(len(b)), reach)
    sizes = np.diff(bins.edges, axis=0)
    seen = {}
    for some, k, kept, cut in bins.scan(sizes > 0):
        for place, n in enumerate(some):
            seen[n] = k[:, place], kept[:, place], cut[:, place]
    for n, row in enumerate(b):
        expected, size = plain(row).offers(0).kept, np.sort(np.abs(row))[::-1]
        nonzero = np.count_nonzero(row)
        if len(expected) <= nonzero:
            continue  # squares that vanish are not offered, but counted
        assert bins.edges[-1, n] >= min(reach[n], nonzero)
        np.testing.assert_allclose(bins.left[:, n], expected[bins.edges[:, n]], rtol=1e-12, atol=1e-300)
        for e in np.flatnonzero(sizes[:, n]):
            inside = np.square(size[bins.edges[e, n] : bins.edges[e + 1, n]], dtype=np.float64)
            assert np.all((bins.low[e, n] <= inside) & (inside <= bins.high[e, n]))
            assert np.count_nonzero(size > bins.cut[e, n]) == bins.edges[e + 1, n]
        if n in seen:
            k, kept, cut = (array[seen[n][0] > 0] for array in seen[n])
            assert sorted(k.tolist()) == list(range(1, bins.edges[-1, n] + 1))
            np.testing.assert_allclose(kept, expected[k], rtol=1e-12, atol=1e-300)
            valid = cut >= 0
            assert np.array_equal((size[:, None] > cut[valid]).sum(axis=0), k[valid])


@given(rows(dtype=np.float32), st.floats(0, 3), st.data())
def test_what_k_components_take_off_is_never_above_its_bound(b, cut, data):
    """Whatever a row was measured against, and after it has sent."""
    view = Residuals(b)
    view.above(cut)
    for _ in range(2):
        k = np.arange(b.shape[1] + 1)[:, None]
        largest = np.cumsum(np.sort(np.square(b, dtype=np.float64), axis=1)[:, ::-1], axis=1)
        truth = np.concatenate([np.zeros((1, len(b))), largest.T])
        assert np.all(truth <= view.most(k) * (1 + 1e-9) + 1e-12)
        assert np.all(truth <= plain(b).most(k) * (1 + 1e-9))
        leaves(view, np.array([data.draw(st.integers(0, b.shape[1])) for _ in b]), 1.0, np.zeros(b.shape[1]))


@pytest.mark.parametrize("values", ["float16", "bfloat16"])
@given(b=rows(dtype=np.float32), cut=st.floats(0, 3), enough=st.floats(0, 30))
def test_a_row_is_left_unopened_only_if_its_excess_is_too_small(values, b, cut, enough):
    compressor = RoundedTopK(values)
    view = PlainResiduals(b.copy(), compressor)
    view.expect(cut, moment(b))
    count, gain = view.above(cut, enough)
    true_count, true_gain = PlainVectors(b, compressor, moment(b)).above(cut)
    told = (count == true_count) & np.isclose(gain, true_gain)
    assert np.all(told | ((count == 0) & (true_gain - true_count * cut**2 < enough + 1e-9)))


@pytest.mark.parametrize("kind", [Residuals, lambda b: PlainResiduals(b, TopK())], ids=["fused", "plain"])
@given(rows(dtype=np.float32), st.booleans(), st.data())
def test_kernels_send_what_topk_sends(kind, b, ask_first, data):
    """Both ways of the engine, by a known threshold and by selection, equal the plain top-k."""
    weights = np.linspace(0.1, 1.0, len(b))
    residuals, total = b.copy(), np.zeros(b.shape[1])
    view = kind(residuals)
    view.expect(0.0, moment(b))
    if ask_first:
        k, _ = view.above(data.draw(st.floats(0, 3)))
    else:
        k = np.array([data.draw(st.integers(0, b.shape[1])) for _ in b])
    kept = leaves(view, k, weights, total)
    v = topk(b, k)
    assert np.array_equal(residuals, b - v)
    np.testing.assert_allclose(total, weights @ v.astype(np.float64), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kept, np.sum((b - v).astype(np.float64) ** 2, axis=1), rtol=1e-9, atol=1e-9)


@given(rows(dtype=np.float32), st.data())
def test_what_is_remembered_decides_as_reading_does(b, data):
    """Over iterations in which few rows change, rows that are not read again decide the same."""
    residuals, copied = b.copy(), b.copy()
    view = Residuals(residuals)
    again = Residuals(b.copy())  # stopped and resumed after every iteration
    number = st.floats(0, 2)
    for _ in range(4):
        Phi, beta, gamma = (np.array([data.draw(number) for _ in b]) for _ in range(3))
        chosen = np.flatnonzero([data.draw(st.booleans()) for _ in b])
        grads = np.array([[data.draw(st.floats(-1, 1, width=32)) for _ in row] for row in b], np.float32)
        view.expect(online.threshold(0.5, Phi, gamma))
        view.entering(chosen)
        view.add(chosen, 0, np.ones(len(chosen), np.float32), grads[chosen])
        view.entered(chosen)
        copied[chosen] += grads[chosen]
        assert np.array_equal(residuals, copied)
        k = online.num_sent(0.5, Phi, beta, gamma, view)
        assert np.array_equal(k, online.num_sent(0.5, Phi, beta, gamma, plain(copied)))
        total = np.zeros(b.shape[1])
        kept = leaves(view, k, 1.0, total)
        copied -= topk(copied, k)
        assert np.array_equal(residuals, copied)
        np.testing.assert_allclose(kept, np.sum(copied.astype(float) ** 2, axis=1), rtol=1e-9, atol=1e-9)
        again = Residuals(residuals)
        again.recall(view.knowledge())
        assert np.array_equal(again.energy, view.energy)
        view = again


@given(rows(dtype=np.float32), st.floats(0.1, 3), st.floats(0.1, 3), st.floats(0.01, 30))
def test_a_row_is_left_unread_only_if_its_excess_is_too_small(b, first, second, enough):
    view = Residuals(b)
    view.above(first)
    count, energy = view.above(second, enough)
    true_count, true_energy = plain(b).above(second)
    excess = true_energy - true_count * second**2
    told = (count == true_count) & np.isclose(energy, true_energy)
    assert np.all(told | ((count == 0) & (excess < enough)))


@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 7), st.integers(1, 9), st.sampled_from(["f4", "f8"])
)
def test_products_enter_as_if_written_down(clients, samples, outputs, width, dtype):
    rng = np.random.default_rng(clients * 1000 + samples * 100 + outputs * 10 + width)
    start = 2
    b = rng.standard_normal((clients + 2, start + outputs * width + outputs + 1)).astype(dtype)
    x = rng.standard_normal((clients, samples, width)).astype(dtype)
    g = rng.standard_normal((clients, samples, outputs)).astype(dtype)
    step = rng.standard_normal(clients).astype(dtype)
    chosen = rng.permutation(clients + 2)[:clients]
    wanted = b.copy()
    wanted[chosen, start : start + outputs * width] += step[:, None] * np.einsum(
        "mko,mki->moi", g, x
    ).reshape(clients, -1)
    wanted[chosen, start + outputs * width : -1] += step[:, None] * g.sum(axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "PIECE", width * 2)  # several pieces of a product, the last one short
        view = Residuals(b)
        view.entering(chosen)
        view.add(chosen, 0, step, np.zeros((clients, start), dtype))
        view.add_outer(chosen, start, step, x, g)
        view.add_over_samples(chosen, start + outputs * width, step, g)
        view.add(chosen, b.shape[1] - 1, step, np.zeros((clients, 1), dtype))
        view.entered(chosen)
    np.testing.assert_allclose(b, wanted, rtol=1e-4 if dtype == "f4" else 1e-10, atol=1e-5)
    np.testing.assert_allclose(view.energy, np.sum(b.astype(float) ** 2, axis=1), rtol=1e-9)


def test_a_product_of_another_type_is_refused():
    view, one = Residuals(np.zeros((1, 4), np.float32)), np.ones(1, np.float32)
    x, g = np.ones((1, 3, 2), np.float32), np.ones((1, 3, 2), np.float32)
    for factors in ((x.astype(float), g), (x, g.astype(float)), (x[:, :, ::-1], g)):
        with pytest.raises(TypeError, match="factors must be contiguous float32"):
            view.add_outer(np.array([0]), 0, one, *factors)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_the_kth_largest_is_found_like_by_a_stable_sort(dtype, data):
    """Numbers of all sizes, with many ties: bins of the fast search hold none, one or all of them."""
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    pool = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + np.finfo(dtype).eps, 1.5, -3.0, tiny, -huge])
    wide = st.floats(width=np.dtype(dtype).itemsize * 8, allow_nan=False, allow_infinity=False)
    b = np.array([data.draw(st.lists(pool | wide, min_size=1, max_size=60))], dtype=dtype)
    k = data.draw(st.integers(1, b.shape[1]))
    cut, last = Residuals(b)._find_cuts(np.array([0]), np.array([k]))
    sizes = np.abs(b[0])
    order = np.argsort(-sizes, kind="stable")[:k]
    assert cut[0] == sizes[order[-1]]
    assert last[0] == order[-1]
    chosen = (sizes > cut[0]) | ((sizes == cut[0]) & (np.arange(len(sizes)) <= last[0]))
    assert np.array_equal(np.flatnonzero(chosen), np.sort(order))
