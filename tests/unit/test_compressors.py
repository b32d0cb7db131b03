"""Compressors that ship against their formulas; the suite of all of them is in contract/test_members.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flexfl.compress import COMPRESSORS, RandK, Sign, Ternary, Threshold, Uniform, levels_bytes, table_bytes
from flexfl.errors import InputError

B = np.random.default_rng(4).standard_t(2, 60) * 1e-3
B[[5, 17]] = 0.0


def stream(seed: int) -> Callable[[], np.random.Generator]:
    return lambda: np.random.default_rng(seed)


def test_threshold_sends_from_the_cut_on() -> None:
    b = np.array([0.5, -2.0, 0.0, 1.0, -0.999])
    for compressor in (Threshold(cut=1.0), Threshold(relative=0.5)):
        assert_array_equal(compressor.compress(b, 1, stream(0)).dense(), [0, -2, 0, 1, 0])
        assert_allclose(compressor.offers(b, stream(0)).kept, [np.square(b).sum(), 0.25 + 0.999**2])
    assert len(Threshold(cut=3.0).offers(b, stream(0)).components) == 1  # there is nothing to send
    small = np.array([0.7], dtype=np.float32)  # a little less than 0.7
    assert len(Threshold(cut=0.7).offers(small, stream(0)).components) == 1


@pytest.mark.parametrize("table", [{}, {"cut": 0.1, "relative": 0.1}])
def test_threshold_has_one_cut(table: dict[str, float]) -> None:
    with pytest.raises(InputError, match="needs either cut or relative"):
        COMPRESSORS.resolve({"kind": "threshold", **table}, "here")


def test_amounts_of_rand_k_follow_one_permutation() -> None:
    before: set[int] = set()
    for amount in range(1, 59):
        message = RandK().compress(B, amount, stream(1))
        assert before < set(message.indices)
        assert_array_equal(message.values, B[message.indices])
        before = set(message.indices)
    assert before == set(np.flatnonzero(B))


def test_the_mean_of_unbiased_messages_is_the_vector() -> None:
    """To five standard errors in the worst component; rand-k and stochastic rounding."""
    for compressor, amount in ((RandK(unbiased=True), 20), (Uniform(3, "stochastic"), 60)):
        sent = np.array([compressor.compress(B, amount, stream(seed)).dense() for seed in range(1500)])
        error = np.abs(sent.mean(axis=0) - B)
        assert np.all(error <= 5 * sent.std(axis=0) / np.sqrt(len(sent)) + 1e-15)


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_uniform_takes_the_nearest_level(bits: int) -> None:
    number = 2 ** (bits - 1)
    grid = np.abs(B).max() / number * np.arange(-number, number + 1)
    expected = grid[np.abs(B[:, None] - grid).argmin(axis=1)]
    assert_allclose(Uniform(bits).compress(B, 60, stream(0)).dense(), expected, atol=1e-17)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sizes_of_uniform_are_those_of_the_counts(rounding: str, dtype: type) -> None:
    b = np.random.default_rng(0).normal(size=3000).astype(dtype)
    for bits in (1, 2, 5, 8):
        compressor = Uniform(bits, rounding)  # type: ignore[arg-type]
        offers = compressor.offers(b, stream(2))
        whole = compressor.compress(b, len(b), stream(2))
        codes = whole.codes[np.argsort(-np.abs(b[whole.indices]), kind="stable")]
        one = np.concatenate([np.zeros((1, 2 ** (bits - 1)), int), np.eye(2 ** (bits - 1), dtype=int)[codes]])
        table = table_bytes(2 ** (bits - 1), "even", dtype)
        assert_array_equal(offers.nbytes, levels_bytes(np.cumsum(one, axis=0), len(b), table))
        assert_array_equal(offers.components, np.arange(whole.components + 1))


def test_sign_is_the_mean_magnitude_over_all_components() -> None:
    message = Sign().compress(B, 1, stream(0))
    assert_allclose(message.dense(), np.sign(B) * np.abs(B).sum() / 60)
    offers = Sign().offers(B, stream(0))
    assert_allclose(offers.kept, [np.square(B).sum(), np.square(B - message.dense()).sum()])
    assert_array_equal(offers.components, [0, 58])


def test_ternary_takes_off_the_square_of_the_sum_over_k() -> None:
    order = np.argsort(-np.abs(B), kind="stable")
    offers = Ternary().offers(B, stream(0))
    assert len(offers.kept) == 59
    for k in range(1, 59):
        S = np.abs(B[order[:k]]).sum()
        assert_allclose(offers.kept[k], np.square(B).sum() - S**2 / k)
        expected = np.zeros(60)
        expected[order[:k]] = np.sign(B[order[:k]]) * S / k
        assert_allclose(Ternary().compress(B, k, stream(0)).dense(), expected)
