"""A fixed number of classes at each client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.data.partition.shards import shards
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


@given(labels_and_clients(), SEEDS, st.integers(1, 7))
def test_every_sample_lies_at_exactly_one_client(drawn: tuple[np.ndarray, int], seed: int, c: int) -> None:
    labels, clients = drawn
    sizes = np.unique(labels, return_counts=True)[1]
    feasible = c <= len(sizes) <= clients * c <= np.minimum(sizes, clients).sum()
    if not feasible:
        with pytest.raises(InputError) as caught:
            shards(labels, clients, generator(seed), num_classes_per_partition=c)
        assert fault_of(caught).field == "data.partition.num_classes_per_partition"
        return
    parts = shards(labels, clients, generator(seed), num_classes_per_partition=c)
    assert_everything_lies_somewhere(parts, len(labels), clients)
    held = counts(parts, labels)[:, np.unique(labels)]  # (N, C)
    assert np.all((held > 0).sum(axis=1) == c)
    # A class is cut evenly, and in as many shards as the others, unless it has too few samples.
    cut = (held > 0).sum(axis=0)
    for index, of_class in enumerate(held.T):
        pieces = of_class[of_class > 0]
        assert pieces.max() - pieces.min() <= 1
        assert cut[index] == sizes[index] or cut[index] >= cut.max() - 1


def test_two_classes_at_each_of_thirty() -> None:
    parts = shards(LABELS, 30, generator(), num_classes_per_partition=2)
    held = counts(parts, LABELS)
    assert {len(part) for part in parts} == {200}  # 60 shards: six of each class, a hundred samples each
    assert np.all((held > 0).sum(axis=0) == 6)


def test_pairs_of_classes_are_drawn() -> None:
    """Over seeds, each of the 45 pairs occurs; and within one deal, pairs are not repeated in blocks."""
    pairs = {
        tuple(np.unique(LABELS[part]))
        for seed in range(20)
        for part in shards(LABELS, 30, generator(seed), num_classes_per_partition=2)
    }
    assert len(pairs) == 45


def test_all_classes_at_every_client() -> None:
    held = counts(shards(LABELS, 8, generator(), num_classes_per_partition=10), LABELS)
    assert np.all(held == 75)


def test_the_seed_decides() -> None:
    parts = shards(LABELS, 30, generator(1), num_classes_per_partition=3)
    assert_same(parts, shards(LABELS, 30, generator(1), num_classes_per_partition=3))
    assert not np.array_equal(parts[0], shards(LABELS, 30, generator(2), num_classes_per_partition=3)[0])


@pytest.mark.parametrize(
    ("clients", "c", "told"),
    [
        (30, 11, "at most the number of classes, 10"),
        (4, 2, "at least 3, or some of the 10 classes are not used"),
    ],
)
def test_numbers_of_classes_that_cannot_be(clients: int, c: int, told: str) -> None:
    with pytest.raises(InputError) as caught:
        shards(LABELS, clients, generator(), num_classes_per_partition=c)
    fault = fault_of(caught)
    assert (fault.field, fault.value) == ("data.partition.num_classes_per_partition", c)
    assert told in fault.rule


def test_classes_with_too_few_samples() -> None:
    labels = np.array([0] * 50 + [1, 1, 2])
    with pytest.raises(InputError, match="must be at most 1: the classes have too few samples"):
        shards(labels, 10, generator(), num_classes_per_partition=2)
    parts = shards(labels, 10, generator(), num_classes_per_partition=1)
    assert_everything_lies_somewhere(parts, 53, 10)


def test_numbers_are_refused() -> None:
    refuses_numbers(shards, num_classes_per_partition=2)
