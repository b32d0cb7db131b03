"""Costs made of costs: another cost times a factor, as a parameter `cost` of a kind.

`[costs.uplink] kind = "carbon"`, `cost = { kind = "energy", technology = "lte" }` counts the carbon of the
joules of that energy. What a kind holds inside is named as in a spec, and checked before any work starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from flexfl.arrays import Count, FloatArray, Number
from flexfl.costs.available import AffineOrAway, CostOrAway, LinearOrAway
from flexfl.costs.base import Cost, CostModel, Measured
from flexfl.costs.linear import Affine, Linear
from flexfl.costs.traces import Trace
from flexfl.counting import Counts
from flexfl.errors import within
from flexfl.parameters import Measure, above_zero, from_zero
from flexfl.registry import Family, for_pydantic
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities, Moment

PerComponent = Annotated[
    Number, Measure("must be > 0 and finite", above_zero, "5 is a value and its place", True, unit="byte")
]
PerMessage = Annotated[
    Number, Measure("must be ≥ 0 and finite", from_zero, "what a message has besides", True, unit="byte")
]
COMPONENT = 5.0
"""Bytes of a component: four for its value, one for its place."""
HEADER = 20.0
"""Bytes of the codec's header."""
MESSAGE = 94.0
"""Bytes of a message besides: 20 of the codec, 20 of IPv4, 32 of TCP with timestamps, 22 of TLS 1.3."""


Written = Literal["components", "bytes"]
"""Whether a cost in bytes counts components, each of so many bytes, or what the codec writes."""


def message_parts(
    moment: Moment, counts: Written, per_component: Number, per_message: Number
) -> tuple[FloatArray, FloatArray]:
    """Return the bytes of a message besides what is counted, and those of what is counted, of each entity.

    Of a message as it is written, every byte counts as one, and the codec's header is among them.
    """
    beta = np.asarray(moment.pick(per_message), dtype=float)
    if counts == "bytes":
        return np.maximum(0.0, beta - HEADER), np.asarray(1.0)
    return beta, np.asarray(moment.pick(per_component), dtype=float)


@dataclass(frozen=True)
class Scaled:
    """A cost of any form times a factor."""

    cost: Cost
    factor: FloatArray

    @property
    def monotone(self) -> bool:
        return bool(getattr(self.cost, "monotone", False))

    @property
    def breakpoints(self) -> FloatArray:
        return np.asarray(getattr(self.cost, "breakpoints", ()))

    def __call__(self, amount: Number | Count) -> FloatArray:
        return np.asarray(self.factor * self.cost(amount))


def scaled(cost: Cost, factor: FloatArray) -> Cost:
    """Return a cost times a factor ≥ 0 for each entity; with a closed form where the cost has one."""
    kind = type(cost)
    if kind is Linear and isinstance(cost, Linear):
        return Linear(cost.per_gradient * factor)
    if kind is Affine and isinstance(cost, Affine):
        return Affine(cost.per_message * factor, cost.per_component * factor)
    if isinstance(cost, LinearOrAway):
        return LinearOrAway(cost.per_gradient * factor, cost.away)
    if isinstance(cost, AffineOrAway):
        return AffineOrAway(cost.per_message * factor, cost.per_component * factor, cost.away)
    if isinstance(cost, CostOrAway):
        return CostOrAway(Scaled(cost.present, factor), cost.away)
    return Scaled(cost, factor)


def family_of(computing: bool) -> Family:
    """Return the family of costs of computing, or of sending."""
    from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS  # which list the kinds that are made of these

    return COMPUTE_COSTS if computing else MESSAGE_COSTS


def _checked(given: Any, computing: bool) -> dict[str, Any]:
    return family_of(computing).resolve(given, "cost")


ComputeTable = Annotated[
    str | dict[str, Any],
    BeforeValidator(lambda given: for_pydantic("cost", lambda: _checked(given, True))),
    Field(validate_default=True),
]
MessageTable = Annotated[
    str | dict[str, Any],
    BeforeValidator(lambda given: for_pydantic("cost", lambda: _checked(given, False))),
    Field(validate_default=True),
]
"""A parameter of a cost: another cost, by its kind or as a table."""


def open_cost(given: Any, *, computing: bool, units: tuple[str, ...] = ()) -> CostModel:
    """Return the cost that a parameter `cost` names, or is.

    Args:
        given: a kind, a table, or an object.
        computing: whether it is a cost of computing.
        units: what it may be counted in; any if left out.

    Raises:
        ValueError: it is measured, or counted in another unit.
    """
    if isinstance(given, CostModel):
        made = given
    else:
        made = family_of(computing).make(_checked(given, computing), "cost")
    if isinstance(made, Measured):
        raise ValueError("cost must not be measured, which only a cost of its own can be")
    unit = getattr(made, "unit", "")
    if units and unit not in units:
        wanted = " or ".join(units)
        raise ValueError(f"cost must be counted in {wanted}, got {unit or 'no unit'}; choose another kind")
    return made


class Wrapper:
    """What costs that are made of another cost have in common: its unit, mean, files and memory."""

    _cost: CostModel
    _trace: Trace | None = None

    @property
    def unit(self) -> str:
        """What it is counted in."""
        return str(getattr(self._cost, "unit", ""))

    @property
    def counts(self) -> Counts:
        """What the cost inside counts of a message."""
        found: Counts = getattr(self._cost, "counts", "components")
        return found

    @property
    def mean_cost(self) -> FloatArray | None:
        """The expected cost of one computation, if that of the cost inside is known."""
        return getattr(self._cost, "mean_cost", None)

    @property
    def contents(self) -> str:
        """What tells apart the files that were read; nothing if there are none."""
        found = [text for part in (self._cost, self._trace) if (text := getattr(part, "contents", ""))]
        return " ".join(found)

    def prepare(self, entities: Entities) -> None:
        """Read and check files before any work starts."""
        prepare_parts(entities, cost=self._cost, trace=self._trace)

    def state(self) -> State:
        return state_of(cost=self._cost)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, cost=self._cost)


def prepare_parts(entities: Entities, **parts: object) -> None:
    """Let each part that reads files read and check them; faults are named below the part."""
    for name, part in parts.items():
        if callable(prepare := getattr(part, "prepare", None)):
            within(name, lambda prepare=prepare: prepare(entities))  # type: ignore[misc]
