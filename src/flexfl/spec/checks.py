"""Field types of a spec whose errors name the rule and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from flexfl.control.policy import KNOBS


def fault(rule: str, value: Any, remedy: str = "") -> PydanticCustomError:
    """An error that `schema.parse` turns into a `Fault` as it stands."""
    return PydanticCustomError("fault", "{rule}", {"rule": rule, "value": value, "remedy": remedy})


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds(value: Any, holds: Callable[[float], bool]) -> bool:
    """Whether it is a number that keeps to the rule; NaN never does."""
    number = _float(value) if is_number(value) else math.nan
    return not math.isnan(number) and holds(number)


def _float(value: Any) -> float:
    """Whole numbers that no float can hold are as good as infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_number(value: Any, rule: str, holds: Callable[[float], bool], remedy: str) -> float:
    """One number."""
    if not _holds(value, holds):
        raise fault(rule, value, remedy)
    return _float(value)


def check_numbers(value: Any, rule: str, holds: Callable[[float], bool], remedy: str) -> float | list[float]:
    """One number, or a list with one for each client."""
    if isinstance(value, list | tuple):
        if not value:
            raise fault(rule, value, "give a number, or a list with one number for each client")
        wrong = {client: entry for client, entry in enumerate(value) if not _holds(entry, holds)}
        if wrong:
            raise fault(f"{rule} for each client", wrong, remedy)
        return [_float(entry) for entry in value]
    return check_number(value, rule, holds, remedy)


def check_by_knob(value: Any, rule: str, holds: Callable[[float], bool], remedy: str) -> Any:
    """One number for all, or a table by knob whose entries may be one for each client."""
    if isinstance(value, list | tuple):
        remedy = "a list is one for each client: write it under compute or uplink"
        raise fault("must be a number or a table by knob", value, remedy)
    if not isinstance(value, Mapping):
        return check_number(value, rule, holds, remedy)
    for knob in value:
        if knob not in KNOBS:
            raise fault("takes a table by compute, uplink and downlink", knob, "rename or remove that key")
    return {knob: check_numbers(entry, f"{rule} ({knob})", holds, remedy) for knob, entry in value.items()}


def check_whole(value: Any, least: int, remedy: str, *, most: int = 2**53) -> int:
    """An int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise fault(f"must be a whole number ≥ {least}", value, remedy)
    if value > most:
        raise fault(f"must be a whole number ≤ {most}", value, remedy)
    return value


def check_bool(value: Any, remedy: str) -> bool:
    if not isinstance(value, bool):
        raise fault("must be true or false", value, remedy)
    return value


def check_device(value: Any) -> str:
    """A device by torch's name; whether it is there is seen when torch is."""
    if not isinstance(value, str) or not re.fullmatch(r"cpu|mps|cuda(:\d+)?", value):
        raise fault("must be one of cpu, cuda, cuda:N, mps", value, "for example cuda:0")
    return value


device = BeforeValidator(check_device)


def _field(check: Callable[..., Any], *rules: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: check(value, *rules))


PositiveFloat = Annotated[
    float,
    _field(check_number, "must be > 0 and finite", lambda v: 0 < v < math.inf, "give a positive number"),
]

_ABOVE_ZERO = ("must be > 0", lambda v: 0 < v < math.inf)
_FROM_ZERO = ("must be ≥ 0", lambda v: 0 <= v < math.inf)
_SHARE = ("must be in (0, 1]", lambda v: 0 < v <= 1)

Tradeoff = Annotated[
    Any, _field(check_by_knob, *_ABOVE_ZERO, "V weighs convergence against cost; the paper has 0.02")
]
InitialQueue = Annotated[
    Any, _field(check_by_knob, *_FROM_ZERO, "W = 0 starts with empty queues; the paper has 1")
]
Floor = Annotated[Any, _field(check_by_knob, *_FROM_ZERO, "the shortest queue; 0, or a little such as 0.001")]
Prob = Annotated[Any, _field(check_numbers, *_SHARE, "1 computes in every iteration")]
Ratio = Annotated[
    Any, _field(check_by_knob, *_SHARE, "k_r is the share of components in a message; 1 sends all")
]


def whole(least: int, remedy: str, *, most: int = 2**53) -> BeforeValidator:
    """An int from `least` to `most`."""
    return BeforeValidator(lambda value: check_whole(value, least, remedy, most=most))
