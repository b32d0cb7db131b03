"""A client for each distinct value of a column, in the order of the values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.data.partition.by_column import by_column
from flexfl.errors import InputError
from partitioning import assert_everything_lies_somewhere, assert_same, generator


@given(st.lists(st.sampled_from(["anna", "bo", "cy", "di"]), min_size=1, max_size=40))
def test_each_value_lies_at_one_client_and_nobody_else(users: list[str]) -> None:
    values = np.array(users)
    parts = by_column(values, len(set(users)), generator(), column="user")
    assert_everything_lies_somewhere(parts, len(values), len(set(users)))
    assert [set(values[part]) for part in parts] == [{name} for name in sorted(set(users))]
    assert all(np.all(np.diff(part) > 0) for part in parts)  # in the order of the data


def test_nothing_is_drawn() -> None:
    values = np.arange(20) % 3
    assert_same(
        by_column(values, 3, generator(1), column="user"), by_column(values, 3, generator(2), column="user")
    )


@pytest.mark.parametrize("clients", [2, 4])
def test_another_number_of_clients_is_refused(clients: int) -> None:
    message = rf"data\.clients must be the number of distinct values of the column 'user', 3, got {clients}"
    with pytest.raises(InputError, match=message):
        by_column(np.arange(20) % 3, clients, generator(), column="user")
