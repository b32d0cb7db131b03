"""What the tests of all partitioners share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flexfl.errors import Fault, InputError
from flexfl.streams import Streams

SEEDS = st.integers(0, 5)


def generator(seed: int = 1) -> np.random.Generator:
    return Streams(seed).generator("partition")


@st.composite
def labels_and_clients(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Up to seven classes, unevenly many samples, at most as many clients as samples."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=200)))
    return labels, draw(st.integers(1, min(40, len(labels))))


def assert_everything_lies_somewhere(parts: Sequence[np.ndarray], samples: int, clients: int) -> None:
    """Every sample at exactly one client, no client without any."""
    assert len(parts) == clients
    assert all(len(part) for part in parts)
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


def assert_same(parts: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> None:
    for part, other in zip(parts, others, strict=True):
        assert_array_equal(part, other)


def counts(parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Samples by client and class, (N, C)."""
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


def fault_of(caught: pytest.ExceptionInfo[InputError]) -> Fault:
    (fault,) = caught.value.faults
    assert fault.remedy
    return fault


def refuses_numbers(partitioner: Any, **options: Any) -> None:
    """Labels that are no classes get one fault that says what to do."""
    with pytest.raises(InputError) as caught:
        partitioner(np.linspace(0, 1, 20), 4, generator(), **options)
    fault = fault_of(caught)
    assert (fault.field, fault.rule) == ("data.partition", "needs labels that are classes")
    assert "float64" in fault.value
    assert "iid or quantity" in fault.remedy
