"""Field types of a spec: numbers within a rule, one or by client, as floats."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from flexfl.spec.checks import check_number, check_numbers, check_whole, is_number


def positive(value: float) -> bool:
    return value > 0


@given(st.integers(1, 10**300) | st.just(10**400) | st.floats(0, exclude_min=True, allow_nan=False))
def test_a_number_that_keeps_to_the_rule_is_a_float(value: float) -> None:
    found = check_number(value, "must be > 0", positive, "")
    assert isinstance(found, float)
    assert found == (math.inf if value == 10**400 else float(value))
    assert check_numbers([value, value], "must be > 0", positive, "") == [found, found]


@pytest.mark.parametrize("value", [0, -1, -(10**400), math.nan, True, "1", None, [1.0]])
def test_others_are_refused_with_rule_and_value(value: Any) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        check_number(value, "must be > 0", positive, "give more")
    assert caught.value.context is not None
    told = [caught.value.context[name] for name in ("rule", "value", "remedy")]
    assert repr(told) == repr(["must be > 0", value, "give more"])


def test_a_list_names_its_wrong_entries() -> None:
    with pytest.raises(PydanticCustomError) as caught:
        check_numbers([1.0, -(10**400), 2, None], "must be > 0", positive, "")
    assert caught.value.context is not None
    assert caught.value.context["value"] == {1: -(10**400), 3: None}


@pytest.mark.parametrize(
    ("value", "found"), [(1, True), (1.5, True), (True, False), ("1", False), (None, False)]
)
def test_what_a_number_is(value: Any, found: bool) -> None:
    assert is_number(value) is found


@pytest.mark.parametrize("value", [0, 6, 2.0, True])
def test_a_whole_number_out_of_its_range(value: Any) -> None:
    assert check_whole(5, 1, "", most=5) == 5
    with pytest.raises(PydanticCustomError):
        check_whole(value, 1, "", most=5)
