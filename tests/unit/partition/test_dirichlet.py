"""Classes spread by shares from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from flexfl.data.partition.dirichlet import cut, dirichlet
from flexfl.errors import InputError
from partitioning import (
    SEEDS,
    assert_everything_lies_somewhere,
    assert_same,
    counts,
    fault_of,
    generator,
    labels_and_clients,
    refuses_numbers,
)

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))


@given(labels_and_clients(), SEEDS, st.floats(1e-3, 100), st.integers(1, 5), st.booleans())
def test_every_sample_lies_at_exactly_one_client(
    drawn: tuple[np.ndarray, int], seed: int, alpha: float, least: int, balanced: bool
) -> None:
    labels, clients = drawn
    options = {"alpha": alpha, "min_partition_size": least, "self_balancing": balanced}
    try:
        parts = dirichlet(labels, clients, generator(seed), **options)
    except InputError:  # too few samples for so many clients, or too uneven
        return
    assert_everything_lies_somewhere(parts, len(labels), clients)
    assert min(len(part) for part in parts) >= least


@given(hnp.arrays(float, st.integers(1, 30), elements=st.floats(0, 1)), st.integers(0, 500))
def test_a_cut_keeps_to_the_shares(weights: np.ndarray, total: int) -> None:
    assume(weights.sum() > 1e-6)
    shares = weights / weights.sum()
    sizes = np.diff(cut(shares, total), prepend=0)
    assert sizes.sum() == total
    assert sizes.min() >= 0
    assert np.all(np.abs(sizes - shares * total) <= 1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_mean_and_variance_of_the_shares(alpha: float) -> None:
    """E[p] = 1/N and Var[p] = (1/N)(1 − 1/N)/(N·alpha + 1), over many classes and seeds."""
    clients, labels = 5, np.repeat(np.arange(400), 200)
    shares = np.concatenate(
        [counts(dirichlet(labels, clients, generator(seed), alpha=alpha), labels) / 200 for seed in range(5)],
        axis=1,
    )
    assert_allclose(shares.mean(axis=1), 1 / clients, rtol=0.1)
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert_allclose(shares.var(axis=1).mean(), variance, rtol=0.05)


def test_the_smaller_alpha_the_fewer_classes_at_a_client() -> None:
    """The share of a client's largest class: an even tenth for a large alpha, nearly all for a small one."""

    def largest(alpha: float) -> float:
        held = counts(dirichlet(LABELS, 20, generator(), alpha=alpha, min_partition_size=1), LABELS)
        return float(np.mean(held.max(axis=1) / held.sum(axis=1)))

    found = [largest(alpha) for alpha in (1e6, 1.0, 0.05)]
    assert found[0] == pytest.approx(0.1, abs=0.005)
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.6


def test_the_usual_minimum_is_ten_or_half_an_even_share() -> None:
    sizes = [min(map(len, dirichlet(LABELS, 100, generator(seed), alpha=0.3))) for seed in range(5)]
    assert min(sizes) >= 10
    few = np.arange(80) % 4  # four each if even: two at least
    assert min(map(len, dirichlet(few, 20, generator(), alpha=5.0))) >= 2


def test_balancing_evens_out_the_sizes() -> None:
    def sizes(self_balancing: bool) -> np.ndarray:
        parts = dirichlet(
            LABELS, 50, generator(), alpha=0.2, min_partition_size=1, self_balancing=self_balancing
        )
        return np.array([len(part) for part in parts])

    assert sizes(True).std() < 0.85 * sizes(False).std()
    # Whoever has an even share, 120, gets nothing more: beyond it by one class's 600 at most.
    assert sizes(True).max() < 120 + 600


def test_balancing_with_shares_that_vanish() -> None:
    """An alpha so small that one client draws all of a class, and zeros are left for the others."""
    labels = np.repeat(np.arange(40), 10)
    parts = dirichlet(labels, 8, generator(), alpha=1e-9, min_partition_size=1, self_balancing=True)
    assert_everything_lies_somewhere(parts, 400, 8)


def test_the_seed_decides() -> None:
    parts = dirichlet(LABELS, 10, generator(1), alpha=0.3)
    assert_same(parts, dirichlet(LABELS, 10, generator(1), alpha=0.3))
    assert not np.array_equal(parts[0], dirichlet(LABELS, 10, generator(2), alpha=0.3)[0])
    assert_array_equal(sum(counts(parts, LABELS)), [600] * 10)


def test_a_minimum_that_no_draw_reaches() -> None:
    with pytest.raises(InputError) as caught:
        dirichlet(LABELS, 100, generator(), alpha=0.01, min_partition_size=50)
    fault = fault_of(caught)
    assert (fault.field, fault.value) == ("data.partition", "alpha = 0.01")
    assert "50 samples or more in none of 500 draws; at best" in fault.rule
    assert "raise alpha" in fault.remedy


def test_a_minimum_above_the_even_share() -> None:
    with pytest.raises(InputError) as caught:
        dirichlet(LABELS, 100, generator(), alpha=1.0, min_partition_size=61)
    fault = fault_of(caught)
    assert (fault.field, fault.value) == ("data.partition.min_partition_size", 61)
    assert fault.rule.endswith("100 clients, 60")


def test_numbers_are_refused() -> None:
    refuses_numbers(dirichlet, alpha=1.0)
