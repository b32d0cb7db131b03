"""The parameters that a class or function declares, and a pydantic model that checks values for them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model
from pydantic.errors import PydanticSchemaGenerationError

from flexfl.arrays import Number
from flexfl.parameters import Rule

_ANY_NUMBER = Rule("must be a number", lambda number: True, per_client=True)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a member."""

    name: str
    annotation: Any
    default: Any
    """`inspect.Parameter.empty` for one that must be given."""

    @property
    def rule(self) -> Rule | None:
        """Its rule for numbers, if it has one."""
        found = get_args(self.annotation)[1:] if get_origin(self.annotation) is Annotated else ()
        return next((entry for entry in found if isinstance(entry, Rule)), None)

    @property
    def needed(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty


@cache
def parameters_of(make: Callable[..., Any], arguments: int = 0) -> dict[str, Parameter]:
    """Return the parameters that a class or function takes, by name; one without a type takes anything.

    Args:
        make: the class or function.
        arguments: how many come first that are not for a person to set.
    """
    try:
        hints = get_type_hints(make if _is_function(make) else make.__init__, include_extras=True)
    except Exception:  # names that only a type checker can see
        hints = {}
    made = {
        entry.name: entry.default_factory
        for entry in (fields(make) if is_dataclass(make) else ())
        if entry.default_factory is not MISSING
    }
    found = {}
    for name, entry in list(_signature(make).items())[arguments:]:
        if entry.kind not in (entry.VAR_POSITIONAL, entry.VAR_KEYWORD):
            default = made[name]() if name in made else entry.default
            found[name] = Parameter(name, _checkable(hints.get(name, Any)), default)
    return found


def _signature(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments; of something that hides them (some built-ins), that it takes anything."""
    try:
        return inspect.signature(make).parameters
    except ValueError:
        return {"options": inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)}


def _is_function(make: Any) -> bool:
    return isinstance(make, types.FunctionType | types.BuiltinFunctionType)


def _checkable(annotation: Any) -> Any:
    """Return the annotation, or Any if pydantic cannot check values against it."""
    if annotation == Number:
        return Annotated[Number, _ANY_NUMBER]
    try:
        create_model("_", value=(annotation, ...))
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
        return Any
    return annotation


@cache
def model_of(make: Callable[..., Any], arguments: int = 0) -> type[BaseModel]:
    """Return a model with the field `field_NAME` for each parameter, given by its own name."""
    entries: dict[str, Any] = {
        f"field_{name}": (_aliased(entry), ... if entry.needed else entry.default)
        for name, entry in parameters_of(make, arguments).items()
    }
    open_ended = any(entry.kind is entry.VAR_KEYWORD for entry in _signature(make).values())
    config = ConfigDict(extra="allow" if open_ended else "forbid", strict=True)
    return create_model("Parameters", __config__=config, **entries)


def _aliased(entry: Parameter) -> Any:
    # TOML writes a tuple as a list and a path as text.
    strict = False if _has_another_form(entry.annotation) else None
    return Annotated[entry.annotation, Field(alias=entry.name, strict=strict)]


def _has_another_form(annotation: Any) -> bool:
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return any(map(_has_another_form, get_args(annotation)))
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, tuple | set | frozenset | Path | Enum)
