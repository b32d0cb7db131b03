"""Families: members that ship and a user's own, by name, with typed parameters."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from flexfl.arrays import FloatArray, Number
from flexfl.compress import COMPRESSORS
from flexfl.control import POLICIES
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.data.partition import PARTITIONS
from flexfl.errors import Fault, InputError
from flexfl.local import LOCAL_WORK
from flexfl.parameters import PerClientFromZero, Positive
from flexfl.registry import Family, import_object, is_given, is_import_path
from flexfl.results.trackers import TRACKERS


@dataclass(frozen=True)
class Square:
    side: Positive = 1.0
    weights: PerClientFromZero = 1.0
    names: list[str] = field(default_factory=lambda: ["a"])


class Colour(Enum):
    RED = "red"


class Circle:
    """As users write them: no dataclass, parameters of any kind."""

    def __init__(
        self,
        radius: float,
        levels: list[float],
        centre: tuple[float, ...] = (0.0, 0.0),
        colour: Colour = Colour.RED,
        file: Path | None = None,
        share: Number = 1.0,
        mode: Literal["a", "b"] = "a",
        untyped=None,  # type: ignore[no-untyped-def]
        unknown: NoSuchName = None,  # type: ignore[name-defined] # noqa: F821
    ) -> None:
        vars(self).update(locals())


class Typed:
    def __init__(
        self,
        levels: list[float],
        centre: tuple[float, ...] = (0.0, 0.0),
        colour: Colour = Colour.RED,
        file: Path | None = None,
        share: Number = 1.0,
        shares: FloatArray | None = None,
        mode: Literal["a", "b"] = "a",
    ) -> None:
        vars(self).update(locals())


def line(a: object, b: object, /, length: int = 3, **more: Any) -> dict[str, Any]:
    return {"a": a, "b": b, "length": length, **more}


SHAPES = Family("shape", {"square": Square})
LINES = Family("line", {"line": line}, arguments=2)
TYPED, CIRCLE = "test_registry_own:Typed", "test_registry_own:Circle"


@pytest.fixture(autouse=True)
def own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """This file as a user's module."""
    monkeypatch.setitem(sys.modules, "test_registry_own", sys.modules[__name__])


def faults_of(family: Family, given: Any, *, make: bool = False) -> tuple[Fault, ...]:
    def work() -> None:
        found = family.resolve(given, "here")
        if make:
            family.make(found, "here")

    with pytest.raises(InputError) as caught:
        work()
    return caught.value.faults


# Resolving -----------------------------------------------------------------------------------


def test_a_name_and_a_table_are_resolved_with_all_defaults() -> None:
    whole = {"kind": "square", "side": 1.0, "weights": 1.0, "names": ["a"]}
    assert SHAPES.resolve("square", "here") == whole
    assert SHAPES.resolve({"kind": "square", "side": 2}, "here") == {**whole, "side": 2.0}
    assert SHAPES.resolve({}, "here", {"kind": "square", "side": 5.0}) == {**whole, "side": 5.0}
    assert SHAPES.resolve({"side": 2}, "here", {"kind": "square", "side": 5.0})["side"] == 2.0
    weights = SHAPES.resolve({"kind": "square", "weights": np.array([1, 2])}, "here")["weights"]
    assert weights == [1.0, 2.0]
    assert isinstance(weights, list)


def test_all_faults_are_listed_at_once() -> None:
    found = faults_of(SHAPES, {"kind": "square", "side": 0, "weights": [1, -1], "sides": 4, "names": "b"})
    assert {fault.field: fault.value for fault in found} == {
        "here.side": 0,
        "here.weights": {1: -1},
        "here.sides": 4,
        "here.names": "b",
    }
    (unknown,) = (fault for fault in found if fault.field == "here.sides")
    assert (unknown.rule, unknown.remedy) == ("is not a parameter of square", "did you mean side?")


@pytest.mark.parametrize(
    ("given", "field", "remedy"),
    [
        ("sqare", "here", "did you mean square?"),
        ({"kind": "sqare"}, "here.kind", "did you mean square?"),
        ({}, "here.kind", "add kind = …, one of square"),
        (5, "here", 'kind = "square"'),
    ],
)
def test_a_member_that_is_not_there(given: Any, field: str, remedy: str) -> None:
    (fault,) = faults_of(SHAPES, given)
    assert fault.field == field
    assert remedy in fault.remedy


def test_own_members_and_given_objects_are_left_as_they_are() -> None:
    own = {"kind": "no_such_module:Name", "levels": [1, 2], "deep": {"x": [3]}}
    given = {"kind": "given:somewhere.Name"}
    for table in (own, given):
        assert SHAPES.resolve(table, "here") == table
        assert SHAPES.resolve(table["kind"], "here") == {"kind": table["kind"]}
    with pytest.raises(InputError, match=r"here\.levels cannot be set beside an object"):
        SHAPES.resolve(given | {"levels": [1]}, "here")


# Making --------------------------------------------------------------------------------------


def test_lists_by_client_become_arrays_and_other_lists_stay() -> None:
    table = {"kind": "square", "weights": [1, 2], "names": ["x", "y"]}
    resolved = SHAPES.resolve(table, "here")
    assert SHAPES.lists_by_client(resolved) == {"weights": [1.0, 2.0]}
    made = SHAPES.make(resolved, "here")
    np.testing.assert_array_equal(made.weights, np.array([1.0, 2.0]), strict=True)
    assert made.names == ["x", "y"]


def test_an_own_class_with_typed_parameters() -> None:
    table = {
        "kind": TYPED,
        "levels": [0.1, 2],
        "centre": [1, 2],
        "colour": "red",
        "file": "a/b",
        "share": [1, 2],
        "shares": [3, 4],
        "mode": "b",
    }
    assert SHAPES.lists_by_client(table) == {}  # what its lists mean is not known before it is imported
    made = SHAPES.make(SHAPES.resolve(table, "here"), "here")
    assert (made.levels, made.centre, made.colour) == ([0.1, 2], (1, 2), Colour.RED)
    assert (made.file, made.mode, made.shares) == (Path("a/b"), "b", [3, 4])
    np.testing.assert_array_equal(made.share, np.array([1.0, 2.0]), strict=True)


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"levels": 0.1}, "here.levels", "must be a list"),
        ({"levels": [0.1, "x"]}, "here.levels.1", "must be a number"),
        ({"levels": None}, "here.levels", "must be a list"),
        ({"level": [1]}, "here.level", f"is not a parameter of {TYPED}"),
        ({"mode": "c"}, "here.mode", "must be 'a' or 'b'"),
        ({"share": "much"}, "here.share", "must be a number"),
    ],
)
def test_wrong_parameters_of_an_own_class(change: dict[str, Any], field: str, rule: str) -> None:
    (fault,) = faults_of(SHAPES, {"kind": TYPED, "levels": [1.0], **change}, make=True)
    assert (fault.field, fault.rule) == (field, rule)
    assert fault.remedy


def test_a_parameter_that_is_needed() -> None:
    (fault,) = faults_of(SHAPES, TYPED, make=True)
    assert (fault.field, fault.rule) == ("here.levels", f"is needed by {TYPED}")
    assert "levels = …" in fault.remedy


def test_annotations_that_cannot_be_read_take_anything() -> None:
    made = SHAPES.make({"kind": CIRCLE, "radius": 1, "levels": "x", "untyped": [1]}, "here")
    assert (made.radius, made.levels, made.untyped) == (1, "x", [1])


def test_functions_are_called_with_their_own_arguments_first() -> None:
    assert LINES.resolve("line", "here") == {"kind": "line", "length": 3}
    assert LINES.make({"kind": "line", "length": 4}, "here", 1, 2) == {"a": 1, "b": 2, "length": 4}
    assert LINES.resolve({"kind": "line", "colour": "red"}, "here")["colour"] == "red"  # by **more
    (fault,) = faults_of(LINES, {"kind": "line", "length": 2.5})
    assert fault.field == "here.length"


def test_what_an_own_member_raises_is_told() -> None:
    (fault,) = faults_of(SHAPES, {"kind": "builtins:int", "base": 3}, make=True)
    assert fault.field == "here"
    assert "TypeError" in fault.rule
    assert fault.value == {"base": 3}


def test_a_given_object_must_be_given_again() -> None:
    with pytest.raises(InputError, match=r"here was a Python object .*pass it to flexfl\.simulate again"):
        SHAPES.make({"kind": "given:somewhere.Name"}, "here")


@pytest.mark.parametrize("path", ["no_such_module_at_all:Name", "flexfl.costs:NoSuchName"])
def test_an_import_path_that_leads_nowhere(path: str) -> None:
    with pytest.raises(InputError, match="here must name something that can be imported"):
        import_object(path, "here")


def test_names() -> None:
    assert is_import_path("a.b:C")
    assert not any(map(is_import_path, ["a.b", "a:", ":b", "a b:c", 5, None]))
    assert is_given("given:x")
    assert not is_given(5)


# What ships ----------------------------------------------------------------------------------

FAMILIES = {
    "compute": COMPUTE_COSTS,
    "message": MESSAGE_COSTS,
    "policies": POLICIES,
    "compressors": COMPRESSORS,
    "local work": LOCAL_WORK,
    "partitions": PARTITIONS,
    "trackers": TRACKERS,
}
SHIPPED = [(name, kind) for name, family in FAMILIES.items() for kind in family.members]
NEEDED = {
    "send_ratio": 0.1,
    "send_every": 2,
    "compute_prob": 0.5,
    "alpha": 0.3,
    "similarity": 0.5,
    "column": "user",
    "trace": [1.0, 0.0],
}


EITHER = {"threshold": {"relative": 0.1}}
"""What a member needs that has a choice of parameters."""


@pytest.mark.parametrize(("name", "kind"), SHIPPED)
def test_every_member_that_ships_declares_its_parameters(name: str, kind: str) -> None:
    family = FAMILIES[name]
    parameters = family.parameters(kind)
    needed = {key: NEEDED[key] for key, entry in parameters.items() if entry.needed}
    needed |= EITHER.get(kind, {})
    resolved = family.resolve({family.key: kind, **needed}, "here")
    assert family.resolve(resolved, "here") == resolved
    assert set(resolved) - {family.key} <= set(parameters)
    for key, entry in parameters.items():
        assert entry.annotation is not Any, f"{kind}.{key} has no type"
    (fault,) = faults_of(family, {**resolved, "no_such_thing": 1})
    assert fault.field == "here.no_such_thing"
