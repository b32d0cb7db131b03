"""Families of members by name: costs, policies, compressors, partitions, models, trackers.

A family is a table from name to class (or function). A member that ships and one of the user's own, named
"module:Class", go the same way: `Family.resolve` checks what a person wrote and fills in the defaults,
`Family.make` builds the object. The code of an own member is imported by `make` and not before, so that a
site can look at a spec before it runs anything of it.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import (
    BeforeValidator,
    ValidationError,
)
from pydantic_core import InitErrorDetails

from flexfl.errors import Fault, FlexFLError, InputError, in_words, nearest
from flexfl.parameters import KNOBS, fault, faults_of, plain
from flexfl.signatures import Parameter, model_of, parameters_of

GIVEN = "given:"
"""Marks, in a resolved spec, an object that was passed in Python."""

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_import_path(name: Any) -> bool:
    """Return whether it reads as "module:object"."""
    return isinstance(name, str) and _IMPORT_PATH.fullmatch(name) is not None


def is_given(name: Any) -> bool:
    """Return whether a resolved spec names an object that was passed in Python."""
    return isinstance(name, str) and name.startswith(GIVEN)


def one_of(known: Iterable[str], *, importable: bool = False) -> BeforeValidator:
    """Return a check for a known name; a resolved spec may also name an object passed in Python."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or is_given(value) or value in known:
            return value
        if importable and is_import_path(value):
            return value
        rule = f"must be one of {', '.join(known)}" + (" or module:function" if importable else "")
        raise fault(rule, value, nearest(value, known))

    return BeforeValidator(check)


def import_object(path: str, field: str) -> Any:
    """Return the object at "module:name"; modules in the working folder are found, too."""
    module, name = path.split(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module may raise while it is imported
        remedy = f"{in_words(error)}; start where {module}.py lies, or install it"
        raise InputError([Fault(field, "must name something that can be imported", path, remedy)]) from error


def must_be_given_again(field: str, name: Any) -> InputError:
    """Return the error for a resolved spec that names an object which only its author has."""
    rule = "was a Python object when this spec ran"
    return InputError([Fault(field, rule, name, "pass it to flexfl.simulate again")])


class Family:
    """A table from name to member.

    Args:
        what: what a member is, for messages: "cost of computing".
        members: name → class or function.
        key: the key of a table that names the member.
        arguments: how many arguments members are called with before those that a person sets.
    """

    def __init__(
        self,
        what: str,
        members: Mapping[str, Callable[..., Any]],
        *,
        key: str = "kind",
        arguments: int = 0,
    ) -> None:
        self.what, self.members, self.key, self._arguments = what, dict(members), key, arguments

    def parameters(self, kind: str) -> dict[str, Parameter]:
        """Return the parameters of a member that ships."""
        return parameters_of(self.members[kind], self._arguments)

    def resolve(self, given: Any, field: str, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Check a name, or a table with a name and parameters, and fill in the defaults.

        Args:
            given: what the person wrote.
            field: where, for messages.
            defaults: the member to take where none is named, with its parameters.

        Returns:
            A table with the member's name under `key` and all its parameters, as TOML knows them. A table
            that names an own member, or an object passed in Python, is returned as it is.

        Raises:
            InputError: lists all faults.
        """
        table = {self.key: given} if isinstance(given, str) else given
        names = ", ".join(self.members)
        if not isinstance(table, Mapping):
            rule, example = f"must be one of {names}, or a table with a {self.key}", next(iter(self.members))
            remedy = f'for example {{ {self.key} = "{example}" }}'
            if callable(given):
                remedy = f"give a name, or an object with the methods of a {self.what}"
            raise InputError([Fault(field, rule, given, remedy)])
        table, defaults = dict(plain(table)), dict(defaults or {})
        kind = table.get(self.key, defaults.get(self.key))
        if is_given(kind) and (more := sorted(table.keys() - {self.key} - set(KNOBS))):
            rule = "cannot be set beside an object, which has its own"
            raise InputError([Fault(f"{field}.{more[0]}", rule, table[more[0]], "give it to the object")])
        if is_import_path(kind) or is_given(kind):
            return {self.key: kind} | table
        if kind is None:
            remedy = f"add {self.key} = …, one of {names} or module:name"
            raise InputError([Fault(f"{field}.{self.key}", "is needed", None, remedy)])
        if not isinstance(kind, str) or kind not in self.members:
            at = field if isinstance(given, str) else f"{field}.{self.key}"
            rule, remedy = f"must be one of {names} or module:name", nearest(kind, self.members)
            if not isinstance(kind, str) and remedy.startswith("known"):
                remedy = f"give a name, or an object with the methods of a {self.what}"
            raise InputError([Fault(at, rule, kind, remedy)])
        asked = {name: value for name, value in table.items() if name != self.key}
        if kind == defaults.pop(self.key, None):
            asked = defaults | asked
        member = self.members[kind]
        checked = self._checked(kind, member, asked, field)
        if is_dataclass(member):  # also what holds between its parameters
            self.make({self.key: kind} | checked, field)
        return {self.key: kind} | checked

    def resolve_all(
        self, given: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Resolve all of these tables, by field; one error lists the faults of all."""
        resolved: dict[str, dict[str, Any]] = {}
        faults: list[Fault] = []
        for field, table in given.items():
            try:
                resolved[field] = self.resolve(table, field, (defaults or {}).get(field))
            except InputError as error:
                faults += error.faults
        if faults:
            raise InputError(faults)
        return resolved

    def make(self, resolved: Mapping[str, Any], field: str, *arguments: Any) -> Any:
        """Build the member that a resolved table names; lists by client become arrays.

        Raises:
            InputError: an own member cannot be imported or does not take these parameters.
        """
        kind = resolved[self.key]
        if is_given(kind):
            raise must_be_given_again(field, kind)
        asked = {name: value for name, value in resolved.items() if name != self.key}
        return self.call(self.member(kind, f"{field}.{self.key}"), kind, asked, field, *arguments)

    def member(self, kind: str, field: str) -> Callable[..., Any]:
        """Return the class or function of that name; an own one is imported."""
        if kind in self.members:
            return self.members[kind]
        member = import_object(kind, field)
        if not callable(member):
            rule = f"must name a class or function that makes a {self.what}"
            raise InputError([Fault(field, rule, kind, f"it is of {type(member)}; name the class itself")])
        return member  # type: ignore[no-any-return]

    def call(
        self, member: Callable[..., Any], kind: str, asked: Mapping[str, Any], field: str, *arguments: Any
    ) -> Any:
        """Call a member with checked parameters; `kind` and `field` are for messages."""
        checked = self._checked(kind, member, asked, field)
        known = parameters_of(member, self._arguments)
        ready = {name: _as_arrays(known.get(name), value) for name, value in checked.items() if name in asked}
        try:
            return member(*arguments, **ready)
        except FlexFLError:
            raise
        except Exception as error:  # whatever an own member may raise
            rule = f"must have parameters that fit {kind} ({in_words(error)})"
            raise InputError([Fault(field, rule, dict(asked), "adjust them")]) from error

    def _checked(
        self, kind: str, member: Callable[..., Any], asked: Mapping[str, Any], field: str
    ) -> dict[str, Any]:
        known = parameters_of(member, self._arguments)
        try:
            found = model_of(member, self._arguments).model_validate(dict(asked))
        except ValidationError as error:
            raise InputError(
                [self._in_words(entry, kind, known, field) for entry in faults_of(error, field, known)]
            ) from error
        values = {name: getattr(found, f"field_{name}") for name in known} | (found.model_extra or {})
        return {name: value for name, value in values.items() if value is not None}

    def _in_words(self, found: Fault, kind: str, known: Mapping[str, Parameter], field: str) -> Fault:
        name = found.field.removeprefix(f"{field}.")
        if found.rule == "is not a key here":
            others = [other for other in self.members if name in self.parameters(other)]
            remedy = f"it is one of {', '.join(others)}" if others else nearest(name, known)
            return Fault(found.field, f"is not a parameter of {kind}", found.value, remedy)
        if found.rule == "is needed":
            rule = known[name].rule if name in known else None
            example = rule.example if rule and rule.example else f"{name} = …"
            if self.key == "kind":  # which may have been given by its name alone
                example = f'{{ kind = "{kind}", {example} }}'
            return Fault(found.field, f"is needed by {kind}", None, f"for example {example}")
        return found

    def lists_by_client(self, resolved: Mapping[str, Any]) -> dict[str, list[float]]:
        """Return the parameters of a resolved table that are lists by client, by "name" or "name.knob".

        A parameter that is a member of this family itself has its own: "name.parameter".
        """
        if resolved.get(self.key) not in self.members:
            return {}
        found: dict[str, list[float]] = {}
        for name, value in resolved.items():
            if isinstance(value, Mapping):
                inside = self.lists_by_client(value)
                found |= {f"{name}.{key}": values for key, values in inside.items()}
        for name, entry in self.parameters(resolved[self.key]).items():
            if entry.rule is not None and name in resolved:
                for knob, values in entry.rule.lists(resolved[name]).items():
                    found[f"{name}.{knob}" if knob else name] = values
        return found

    def field(self, path: str, defaults: Mapping[str, Any] | None = None) -> BeforeValidator:
        """Return a validator for a field of a spec, which lists these faults with all others."""
        return BeforeValidator(lambda value: for_pydantic(path, lambda: self.resolve(value, path, defaults)))


def _as_arrays(parameter: Parameter | None, value: Any) -> Any:
    """Return lists by client as arrays; every other list stays a list."""
    rule = None if parameter is None else parameter.rule
    if rule is None or not rule.per_client:
        return value
    if isinstance(value, Mapping):
        return {knob: _as_arrays(parameter, entry) for knob, entry in value.items()}
    return np.asarray(value, dtype=float) if isinstance(value, list) else value


def for_pydantic(path: str, check: Callable[[], Any]) -> Any:
    """Return what `check` returns; raise its faults as pydantic's errors below the field `path`."""
    try:
        return check()
    except InputError as error:
        lines = [
            InitErrorDetails(
                type=fault(entry.rule, entry.value, entry.remedy),
                loc=tuple(entry.field.removeprefix(path).split(".")[1:]),
                input=entry.value,
            )
            for entry in error.faults
        ]
        raise ValidationError.from_exception_data(path, lines) from error
