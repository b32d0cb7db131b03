"""One class at each client, as in the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_array_equal

from flexfl.data.partition.one_class import one_class
from flexfl.errors import InputError
from partitioning import SEEDS, assert_same, generator, labels_and_clients, refuses_numbers


def test_as_in_the_paper() -> None:
    """100 clients, 10 classes: class c on clients 10c … 10c+9, evenly."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    parts = one_class(labels, 100, generator())
    assert [len(part) for part in parts] == [60] * 100
    for client, part in enumerate(parts):
        assert set(labels[part]) == {client // 10}
        assert_array_equal(part, np.sort(part))  # in file order
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(6000))


@given(labels_and_clients(), SEEDS)
def test_a_class_is_spread_evenly_over_its_clients(drawn: tuple[np.ndarray, int], seed: int) -> None:
    labels, clients = drawn
    known = np.unique(labels)
    if clients < len(known):
        with pytest.raises(InputError, match="at least the number of classes"):
            one_class(labels, clients, generator(seed))
        return
    shares = np.bincount(np.arange(clients) * len(known) // clients)
    if (np.unique(labels, return_counts=True)[1] < shares).any():
        with pytest.raises(InputError, match="must leave every client a sample"):
            one_class(labels, clients, generator(seed))
        return
    parts = one_class(labels, clients, generator(seed))
    assert len(parts) == clients
    assert all(len(part) for part in parts)
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    for index, label in enumerate(known):
        # Client n of N has class ⌊n·C/N⌋; those that do, have equally many, within one.
        holders = [part for n, part in enumerate(parts) if n * len(known) // clients == index]
        assert all(set(labels[part]) <= {label} for part in holders)
        assert sum(map(len, holders)) == np.count_nonzero(labels == label)
        assert max(map(len, holders)) - min(map(len, holders)) <= 1


def test_a_class_that_is_too_small_is_named_once() -> None:
    labels = np.repeat([4, 7], [50, 3])
    with pytest.raises(InputError) as caught:
        one_class(labels, 10, generator())
    assert [str(fault) for fault in caught.value.faults] == [
        "data.clients must leave every client a sample, with one-class (class 7 has 3 for 5 clients), "
        "got 10; use fewer clients or another partition"
    ]


def test_nothing_is_drawn() -> None:
    labels = np.random.default_rng(0).integers(0, 5, 100)
    assert_same(one_class(labels, 20, generator(1)), one_class(labels, 20, generator(2)))


def test_numbers_are_refused() -> None:
    refuses_numbers(one_class)
