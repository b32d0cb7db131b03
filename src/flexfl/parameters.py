"""Types of parameters whose errors name the rule and the remedy.

A member of a family (a cost, a policy, a compressor, …) declares its parameters as annotated arguments of
its class, and the spec, its error messages and the tables of the documentation are made from them:

    @dataclass(frozen=True)
    class ConstantCompute:
        per_gradient: PerClientFromZero = 1.0

A parameter with `per_client` is one number for all, or a list with one for each client. A list in any other
parameter stays the list that the person wrote.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from flexfl.arrays import Number
from flexfl.errors import Fault, nearest
from flexfl.units import COST_UNITS, convert

KNOBS = ("compute", "uplink", "downlink")


def fault(rule: str, value: Any, remedy: str = "") -> PydanticCustomError:
    """Return an error that `faults_of` turns into a `Fault` as it stands."""
    return PydanticCustomError("fault", "{rule}", {"rule": rule, "value": value, "remedy": remedy})


def is_number(value: Any) -> bool:
    """Return whether the value is an int or a float; a bool is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Rule:
    """A rule for numbers, as metadata of an annotation; pydantic checks values with it.

    Attributes:
        text: what must hold, in words.
        holds: whether a number keeps to it; NaN never does.
        remedy: what to do about a number that does not.
        per_client: a list with one number for each client is allowed, too.
        by_knob: a table by compute, uplink and downlink is allowed, too.
        knobs: the knobs that it is for: a table must have all of these where there is no default.
        optional: the value may be left out.
        example: how to write it, for parameters that must be given.
    """

    text: str
    holds: Callable[[float], bool]
    remedy: str = "correct it"
    per_client: bool = False
    by_knob: bool = False
    knobs: tuple[str, ...] = KNOBS
    optional: bool = False
    example: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def check(self, value: Any) -> Any:
        """Return the value as floats, or raise `fault`."""
        if value is None and self.optional:
            return None
        if not self.by_knob:
            return self._numbers(value, self.text)
        if isinstance(value, list | tuple):
            remedy = "a list is one for each client: write it under compute or uplink"
            raise fault("must be a number or a table by knob", value, remedy)
        if not isinstance(value, Mapping):
            return self._numbers(value, self.text)
        for knob in value:
            if knob not in KNOBS:
                rule = "takes a table by compute, uplink and downlink"
                raise fault(rule, knob, "rename or remove that key")
        return {knob: self._numbers(entry, f"{self.text} ({knob})") for knob, entry in value.items()}

    def _numbers(self, value: Any, text: str) -> float | list[float]:
        value = plain(value)
        if not isinstance(value, list) or not self.per_client:
            if not self._kept_by(value):
                raise fault(text, value, (isinstance(value, str) and as_number(value)) or self.remedy)
            return _float(value)
        if not value:
            raise fault(text, value, "give a number, or a list with one number for each client")
        wrong = {client: entry for client, entry in enumerate(value) if not self._kept_by(entry)}
        if wrong:
            first = next(iter(wrong.values()))
            remedy = (isinstance(first, str) and as_number(first)) or self.remedy
            raise fault(f"{text} for each client", wrong, remedy)
        return [_float(entry) for entry in value]

    def _kept_by(self, value: Any) -> bool:
        number = _float(value) if is_number(value) else math.nan
        return not math.isnan(number) and self.holds(number)

    def lists(self, value: Any) -> dict[str, list[float]]:
        """Return the lists by client in a checked value, by knob ("" where there is none)."""
        entries = value.items() if isinstance(value, Mapping) else [("", value)]
        return {knob: entry for knob, entry in entries if isinstance(entry, list)} if self.per_client else {}


@dataclass(frozen=True)
class Measure(Rule):
    """A rule for quantities: numbers in `unit`, or text such as "20 Mbit/s" that is converted to it."""

    unit: str = ""

    def check(self, value: Any) -> Any:
        return super().check(self._converted(value))

    def _converted(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {knob: self._converted(entry) for knob, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self._converted(entry) for entry in value]
        if not isinstance(value, str) or as_number(value):
            return value
        try:
            return convert(value, self.unit)
        except ValueError as error:
            raise fault(str(error), value, f"a number alone is in {self.unit}") from error


@dataclass(frozen=True)
class Whole:
    """A rule for whole numbers from `least` to `most`."""

    least: int
    remedy: str
    most: int = 2**53
    optional: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def check(self, value: Any) -> int | None:
        """Return the number, or raise `fault`."""
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            remedy = as_number(value) or self.remedy
            raise fault(f"must be a whole number ≥ {self.least}", value, remedy)
        if value > self.most:
            raise fault(f"must be a whole number ≤ {self.most}", value, self.remedy)
        return value


def as_number(value: Any) -> str:
    """Return how to write the number that a text seems to mean; nothing if it does not look like one.

    >>> as_number("0,01"), as_number("5"), as_number("5 %"), as_number("0.1, 0.2"), as_number("many")
    ('use a point: 0.01', 'write 5, without quotes', 'write 0.05', 'write a list: [0.1, 0.2]', '')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return f"write {int(value)}"
    if not isinstance(value, str):
        return ""
    text = value.strip()
    if re.fullmatch(r"[+-]?\d*,\d+(e[+-]?\d+)?", text, re.IGNORECASE):
        return f"use a point: {text.replace(',', '.')}"
    if "," in text and all(map(_finite, text.split(","))):
        return f"write a list: [{text}]"
    if text.endswith("%") and _finite(text[:-1]):
        return f"write {float(text[:-1]) / 100:g}"
    if not _finite(text):
        return ""
    written = re.fullmatch(r"[+-]?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?", text, re.IGNORECASE)
    return f"write {text}, without quotes" if written else f"write {float(text):g}"


def _finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def plain(value: Any) -> Any:
    """Return NumPy's arrays and numbers, tuples and ranges as TOML knows them.

    >>> plain({"sizes": (1, 2), "rest": range(2)})
    {'sizes': [1, 2], 'rest': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if callable(getattr(value, "tolist", None)) and not isinstance(value, type):  # of NumPy, of torch
        return value.tolist()
    return [plain(entry) for entry in value] if isinstance(value, list | tuple | range) else value


def _float(value: Any) -> float:
    """Return a float; whole numbers that no float can hold count as infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def above_zero(number: float) -> bool:
    """0 < number < ∞."""
    return 0 < number < math.inf


def from_zero(number: float) -> bool:
    """0 ≤ number < ∞."""
    return 0 <= number < math.inf


def share(number: float) -> bool:
    """0 < number ≤ 1."""
    return 0 < number <= 1


Positive = Annotated[float, Rule("must be > 0 and finite", above_zero, "give a positive number")]
Share = Annotated[float, Rule("must be in (0, 1]", share)]
PerClientPositive = Annotated[Number, Rule("must be > 0 and finite", above_zero, per_client=True)]
PerClientFromZero = Annotated[Number, Rule("must be ≥ 0 and finite", from_zero, per_client=True)]


def absolute(path: str | None) -> str | None:
    """Return a path that stays right when the run is resumed from another folder."""
    return os.path.abspath(Path(path).expanduser()) if path else path


FilePath = Annotated[str, AfterValidator(absolute)]
"""A path, a folder or a pattern such as "traces/*.csv"; in the file of a spec, relative to that file."""


def _cost_unit(value: Any) -> str:
    if isinstance(value, str) and value in ("", *COST_UNITS):
        return value
    raise fault(f"must be one of {', '.join(COST_UNITS)}", value, "leave it out for a cost without a unit")


CostUnit = Annotated[str, BeforeValidator(_cost_unit)]
"""What a cost is counted in; "" for the paper's abstract costs."""


def faults_of(error: ValidationError, prefix: str, known: Mapping[str, Any]) -> list[Fault]:
    """Return pydantic's errors in the project's words; `known` are the names that are allowed there."""
    return [_fault(prefix, entry, known) for entry in error.errors(include_url=False)]


def _fault(prefix: str, entry: Any, known: Mapping[str, Any]) -> Fault:
    path = ".".join([prefix, *(str(part) for part in entry["loc"] if part not in _INTERNAL)])
    kind, value, context = entry["type"], entry["input"], entry.get("ctx", {})
    if kind == "fault":
        return Fault(path, context["rule"], context["value"], context["remedy"])
    if kind == "extra_forbidden":
        return Fault(path, "is not a key here", value, nearest(entry["loc"][-1], known))
    if kind == "literal_error":
        return Fault(path, f"must be {context['expected']}", value, "choose one of these")
    if kind == "missing":
        return Fault(path, "is needed", None, "add it")
    wanted = _TYPES.get(kind)
    return Fault(path, f"must be {wanted}" if wanted else entry["msg"].lower(), value, "correct it")


_INTERNAL = {"str", "dict[str,any]", "dict[str,str]"}
_TYPES = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "dict_type": "a table",
    "list_type": "a list",
    "float_type": "a number",
    "int_type": "a whole number",
    "model_type": "a table",
}
