"""The clock of a simulation in a spec: what takes how long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from flexfl.control.timing import Timing
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS, CostModel
from flexfl.costs.transfer import LINK_TIMES
from flexfl.errors import Fault, InputError
from flexfl.parameters import KNOBS, Measure, above_zero
from flexfl.registry import Family, for_pydantic, is_given, is_import_path
from flexfl.spec.sections import Section
from flexfl.units import convert, show

OVERHEAD = 0.05
"""Seconds of an iteration besides: a round trip."""
_TIME = Measure("must be > 0 and finite", above_zero, 'for example "30 s"', optional=True, unit="second")
_Seconds = Annotated[float | None, _TIME]
_MEASURED = Fault("", "cannot be measured in a simulation", "measured", "choose another kind")
_IN_SECONDS = 'choose a cost in seconds, for example { kind = "constant", unit = "second", … }'


def family_of(knob: str, kind: Any) -> Family:
    """Return the family that a time of this kind belongs to."""
    return LINK_TIMES if kind in LINK_TIMES.members else COMPUTE_COSTS if knob == "compute" else MESSAGE_COSTS


def _time(knob: str, value: Any) -> Any:
    """Return the resolved table of a time: a kind of cost in seconds, or the rate of a link.

    Raises:
        InputError: lists what is wrong with it.
    """
    field = f"clock.{knob}"
    if knob != "compute" and isinstance(value, str) and _is_rate(value):
        value = {"kind": "rate", "rate": value}
    table = {"kind": value} if isinstance(value, str) else value
    kind = table.get("kind") if isinstance(table, Mapping) else None
    family = family_of(knob, kind)
    if knob == "compute" and family is LINK_TIMES:
        raise InputError([Fault(f"{field}.kind", "is for uplink and downlink", kind, _IN_SECONDS)])
    if kind == "measured":
        raise InputError([Fault(f"{field}.kind", _MEASURED.rule, kind, _MEASURED.remedy)])
    known = isinstance(kind, str) and kind in family.members
    if isinstance(value, str) and knob != "compute" and not known and not is_import_path(value):
        rule = "must be the rate of a link, or a kind of cost in seconds"
        raise InputError([Fault(field, rule, value, 'for example "200 kbit/s"')])
    if known and "unit" in family.parameters(str(kind)):
        value = {"unit": "second"} | dict(table)
    found = family.resolve(value, field)
    if is_import_path(found["kind"]) or is_given(found["kind"]):
        return found
    if fault := unit_fault(knob, family.make(found, field)):
        raise InputError([fault])
    return found


def _is_rate(text: str) -> bool:
    try:
        return math.isfinite(convert(text, "bit / second"))
    except ValueError:
        return False


def unit_fault(knob: str, time: object) -> Fault | None:
    """Return the fault of a time that is not counted in seconds."""
    unit = getattr(time, "unit", "")
    if unit == "second":
        return None
    return Fault(f"clock.{knob}", "must be a cost in seconds", unit or "no unit", _IN_SECONDS)


def _validator(knob: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        return None if value is None else for_pydantic(f"clock.{knob}", lambda: _time(knob, value))

    return BeforeValidator(check)


class ClockSpec(Section):
    """How long things take in a simulation; left out, iterations take no time.

    A deployment goes by the clock on the wall, and does not look at this.

    Attributes:
        iteration: seconds of every iteration, whatever is done in it; instead of all that follows.
        compute: the seconds of a computation: a kind of cost in seconds. Left out, it is `costs.compute` if
            that is in seconds, else no time.
        uplink: the seconds of a client's message: a kind of cost in seconds, or the rate of the link, such
            as "200 kbit/s". Left out, as for compute.
        downlink: the seconds until all clients have the server's message, in the same ways.
        overhead: seconds of every iteration besides; "50 ms" if it is left out.
        deadline: the most seconds that an iteration waits for its clients; what is late arrives later.
    """

    iteration: _Seconds = None
    compute: Annotated[Any, _validator("compute")] = None
    uplink: Annotated[Any, _validator("uplink")] = None
    downlink: Annotated[Any, _validator("downlink")] = None
    overhead: _Seconds = None
    deadline: _Seconds = None

    @model_validator(mode="before")
    @classmethod
    def _with_overhead(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not given or given.get("iteration") is not None:
            return given
        return {"overhead": OVERHEAD} | dict(given)

    @property
    def on(self) -> bool:
        """Whether a simulation has a clock."""
        return self.iteration is not None or self.overhead is not None

    def faults(self) -> list[Fault]:
        """Return settings that do not go together."""
        others = [name for name in (*KNOBS, "overhead", "deadline") if getattr(self, name) is not None]
        if self.iteration is None or not others:
            return []
        rule = f"says how long an iteration takes, and {' and '.join(f'clock.{name}' for name in others)} too"
        return [Fault("clock.iteration", rule, show(self.iteration, "second"), "keep one of these")]

    def build(self, costs: Mapping[str, CostModel], models: Mapping[str, CostModel]) -> Timing:
        """Return what takes time, given the costs of the run and the times that this section names.

        Raises:
            InputError: a time of the user's own is not in seconds.
        """
        if faults := [fault for knob, model in models.items() if (fault := unit_fault(knob, model))]:
            raise InputError(faults, "the spec")
        if self.iteration is not None:
            return Timing(iteration=self.iteration)
        charged = [knob for knob, cost in costs.items() if getattr(cost, "unit", "") == "second"]
        return Timing(
            models=models,
            charged=frozenset(charged) - models.keys(),
            overhead=OVERHEAD if self.overhead is None else self.overhead,
            deadline=math.inf if self.deadline is None else self.deadline,
        )
