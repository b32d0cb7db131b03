"""Types of parameters: numbers within a rule, one, by client or by knob, as floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from flexfl.parameters import Rule, Whole, is_number, plain


def positive(value: float) -> bool:
    return value > 0


RULE = Rule("must be > 0", positive, "give more")
BY_CLIENT = Rule("must be > 0", positive, "give more", per_client=True)
BY_KNOB = Rule("must be > 0", positive, "give more", per_client=True, by_knob=True)


def context_of(caught: pytest.ExceptionInfo[PydanticCustomError]) -> dict[str, Any]:
    assert caught.value.context is not None
    return caught.value.context


@given(st.integers(1, 10**300) | st.just(10**400) | st.floats(0, exclude_min=True, allow_nan=False))
def test_a_number_that_keeps_to_the_rule_is_a_float(value: float) -> None:
    found = RULE.check(value)
    assert isinstance(found, float)
    assert found == (math.inf if value == 10**400 else float(value))
    assert BY_CLIENT.check([value, value]) == [found, found]
    assert BY_KNOB.check({"uplink": [value], "downlink": value}) == {"uplink": [found], "downlink": found}


@pytest.mark.parametrize("value", [0, -1, -(10**400), math.nan, True, "one", None, [1.0], {}])
def test_others_are_refused_with_rule_and_value(value: Any) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        RULE.check(value)
    found = [context_of(caught)[name] for name in ("rule", "value", "remedy")]
    assert repr(found) == repr(["must be > 0", value, "give more"])


def test_a_list_names_its_wrong_entries() -> None:
    with pytest.raises(PydanticCustomError) as caught:
        BY_CLIENT.check([1.0, -(10**400), 2, None])
    assert context_of(caught)["value"] == {1: -(10**400), 3: None}
    with pytest.raises(PydanticCustomError, match="must be > 0"):
        BY_CLIENT.check([])


def test_by_knob_names_the_knob() -> None:
    with pytest.raises(PydanticCustomError, match=r"must be > 0 \(uplink\)"):
        BY_KNOB.check({"compute": 1, "uplink": 0})
    with pytest.raises(PydanticCustomError, match="takes a table by compute, uplink and downlink"):
        BY_KNOB.check({"upload": 1})
    with pytest.raises(PydanticCustomError, match="must be a number or a table by knob"):
        BY_KNOB.check([1, 2])


def test_the_lists_by_client_of_a_value() -> None:
    assert BY_KNOB.lists({"compute": [1.0], "uplink": 2.0}) == {"compute": [1.0]}
    assert BY_CLIENT.lists([1.0, 2.0]) == {"": [1.0, 2.0]}
    assert BY_CLIENT.lists(1.0) == RULE.lists([1.0]) == {}


def test_optional_values_may_be_left_out() -> None:
    assert Rule("must be > 0", positive, optional=True).check(None) is None
    assert Whole(1, "", optional=True).check(None) is None


def test_numpy_is_taken_as_toml() -> None:
    assert BY_CLIENT.check(np.array([1, 2])) == [1.0, 2.0]
    assert RULE.check(np.float32(0.5)) == 0.5
    found = plain({"a": np.arange(2), "b": (np.int64(3), {"c": range(2)})})
    assert repr(found) == repr({"a": [0, 1], "b": [3, {"c": [0, 1]}]})


@pytest.mark.parametrize(
    ("value", "found"), [(1, True), (1.5, True), (True, False), ("1", False), (None, False)]
)
def test_what_a_number_is(value: Any, found: bool) -> None:
    assert is_number(value) is found


@pytest.mark.parametrize("value", [0, 6, 2.0, True, None, "3"])
def test_a_whole_number_out_of_its_range(value: Any) -> None:
    assert Whole(1, "", most=5).check(5) == 5
    with pytest.raises(PydanticCustomError):
        Whole(1, "", most=5).check(value)
