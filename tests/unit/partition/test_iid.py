"""Data that look alike everywhere."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from flexfl.data.partition.iid import iid
from partitioning import SEEDS, assert_everything_lies_somewhere, assert_same, generator, labels_and_clients


@given(labels_and_clients(), SEEDS)
def test_every_sample_lies_at_exactly_one_client(drawn: tuple[np.ndarray, int], seed: int) -> None:
    labels, clients = drawn
    parts = iid(labels, clients, generator(seed))
    assert_everything_lies_somewhere(parts, len(labels), clients)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_classes_are_mixed_and_the_seed_decides() -> None:
    labels = np.repeat(np.arange(10), 100)
    parts = iid(labels, 10, generator(1))
    assert all(len(set(labels[part])) == 10 for part in parts)
    assert_same(parts, iid(labels, 10, generator(1)))
    assert not np.array_equal(parts[0], iid(labels, 10, generator(2))[0])


def test_numbers_are_as_good_as_classes() -> None:
    assert_same(iid(np.linspace(0, 1, 30), 4, generator()), iid(np.zeros(30, int), 4, generator()))
