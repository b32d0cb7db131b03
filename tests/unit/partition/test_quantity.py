"""Sizes that differ, labels that do not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flexfl.data.partition.quantity import WEIGHTS, proportional, quantity
from flexfl.errors import InputError
from partitioning import (
    SEEDS,
    assert_everything_lies_somewhere,
    assert_same,
    fault_of,
    generator,
    labels_and_clients,
)


@given(labels_and_clients(), SEEDS, st.sampled_from(sorted(WEIGHTS)))
def test_every_sample_lies_at_exactly_one_client(
    drawn: tuple[np.ndarray, int], seed: int, sizes: str
) -> None:
    labels, clients = drawn
    parts = quantity(labels, clients, generator(seed), sizes=sizes)
    assert_everything_lies_somewhere(parts, len(labels), clients)
    assert np.all(np.diff([len(part) for part in parts]) >= -1)  # rounding may swap neighbours


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.integers(0, 300))
def test_sizes_are_in_proportion_and_at_least_one(weights: list[float], more: int) -> None:
    """max(1, z·w), to less than one sample, with one z for all."""
    w, total = np.array(weights), len(weights) + more
    sizes = proportional(w, total)
    assert sizes.sum() == total
    assert sizes.min() >= 1
    # z from its definition, by bisection: Σ max(1, z·w) = total.
    low, high = 0.0, total / w.max() * len(w) + 1 / w.min()
    for _ in range(200):
        z = (low + high) / 2
        low, high = (z, high) if np.maximum(1, z * w).sum() < total else (low, z)
    assert np.all(np.abs(sizes - np.maximum(1, high * w)) < 1 + 1e-6)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("linear", [60, 120, 180, 240]),
        ("square", [20, 80, 180, 320]),
        ("exponential", [19, 52, 142, 387]),
        ([1, 3, 1, 1], [100, 300, 100, 100]),
    ],
)
def test_sizes_by_hand(sizes: Any, expected: list[int]) -> None:
    total = sum(expected)
    parts = quantity(np.zeros(total, int), 4, generator(), sizes=sizes)
    assert [len(part) for part in parts] == expected


def test_the_weights_by_name() -> None:
    assert set(WEIGHTS) == {"linear", "square", "exponential"}
    n = np.arange(1.0, 6.0)
    for name, raw in (("linear", n), ("square", n**2), ("exponential", np.exp(n))):
        assert_allclose(WEIGHTS[name](n) / WEIGHTS[name](n).sum(), raw / raw.sum())


def test_the_exponential_of_many_clients() -> None:
    """e¹⁰⁰⁰⁰ is no number: most get one sample, the last ones the rest in proportion."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sizes = [len(part) for part in quantity(np.zeros(30_000), 10_000, generator(), sizes="exponential")]
    assert sizes[:9900] == [1] * 9900
    assert sizes[-1] / sizes[-2] == pytest.approx(np.e, rel=0.01)
    assert sizes[-2] / sizes[-3] == pytest.approx(np.e, rel=0.01)


def test_labels_are_iid() -> None:
    labels = np.repeat(np.arange(10), 600)
    parts = quantity(labels, 4, generator(), sizes="linear")
    for part in parts:
        assert_allclose(np.bincount(labels[part]) / len(part), 0.1, atol=0.035)


def test_the_seed_decides() -> None:
    labels = np.zeros(100)
    parts = quantity(labels, 5, generator(1), sizes="square")
    assert_same(parts, quantity(labels, 5, generator(1), sizes="square"))
    assert not np.array_equal(parts[-1], quantity(labels, 5, generator(2), sizes="square")[-1])


def test_a_list_of_another_length() -> None:
    with pytest.raises(InputError) as caught:
        quantity(np.zeros(100), 5, generator(), sizes=[1.0, 2.0])
    fault = fault_of(caught)
    assert (fault.field, fault.value) == ("data.partition.sizes", 2)
    assert fault.rule == "must have one number for each of the 5 clients"
