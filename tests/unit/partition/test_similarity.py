"""From sorted by label to iid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.data.partition.similarity import similarity
from partitioning import (
    SEEDS,
    assert_everything_lies_somewhere,
    assert_same,
    counts,
    generator,
    labels_and_clients,
    refuses_numbers,
)

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))


@given(labels_and_clients(), SEEDS, st.floats(0, 1))
def test_every_sample_lies_at_exactly_one_client(
    drawn: tuple[np.ndarray, int], seed: int, share: float
) -> None:
    labels, clients = drawn
    parts = similarity(labels, clients, generator(seed), similarity=share)
    assert_everything_lies_somewhere(parts, len(labels), clients)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(labels_and_clients(), SEEDS)
def test_zero_is_sorted_by_label(drawn: tuple[np.ndarray, int], seed: int) -> None:
    labels, clients = drawn
    parts = similarity(labels, clients, generator(seed), similarity=0.0)
    dealt = np.concatenate([labels[part] for part in parts])
    assert np.all(np.diff(dealt) >= 0)


def test_one_is_iid() -> None:
    held = counts(similarity(LABELS, 10, generator(), similarity=1.0), LABELS)
    assert held.min() > 30  # sixty of each class, on average
    assert held.max() < 90


@pytest.mark.parametrize("share", [0.1, 0.25, 0.7])
def test_that_share_of_each_client_is_iid(share: float) -> None:
    """Ten clients, ten classes: client n holds class n, and the iid share brings a tenth of it of each."""
    held = counts(similarity(LABELS, 10, generator(), similarity=share), LABELS) / 600
    own = np.diagonal(held)
    # (1 − s) + s/10 of its own class; the sorted part is shifted by what the iid part took unevenly.
    assert own == pytest.approx(np.full(10, 1 - 0.9 * share), abs=0.06)
    assert (held.sum() - own.sum()) / 10 == pytest.approx(0.9 * share, abs=0.03)


def test_few_samples_at_each_client_do_not_all_round_the_same_way() -> None:
    """One sample at each of a hundred clients, a third of them iid."""
    labels = np.repeat(np.arange(10), 10)
    parts = similarity(labels, 100, generator(), similarity=0.3)
    in_order = sum(np.diff(np.concatenate([labels[part] for part in parts])) >= 0)
    assert 60 < in_order < 98


def test_the_seed_decides() -> None:
    parts = similarity(LABELS, 10, generator(1), similarity=0.5)
    assert_same(parts, similarity(LABELS, 10, generator(1), similarity=0.5))
    assert not np.array_equal(parts[0], similarity(LABELS, 10, generator(2), similarity=0.5)[0])


def test_numbers_are_refused() -> None:
    refuses_numbers(similarity, similarity=0.5)
