"""Device classes: how fast clients compute and send, with the same class for every knob.

Which class a client has is drawn once, from a stream that does not depend on the knob, or given in a list.
So a slow client is slow in computing and in sending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.costs.linear import Affine, Linear
from flexfl.costs.parts import COMPONENT, MESSAGE, PerComponent, PerMessage, Written, message_parts
from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import Measure, Positive, Share, above_zero, from_zero
from flexfl.registry import Family, for_pydantic
from flexfl.streams import Entities, Moment

_Rate = Annotated[
    float, Measure("must be > 0 and finite", above_zero, 'for example "5 Mbit/s"', unit="bit / second")
]
_Power = Annotated[
    float, Measure("must be ≥ 0 and finite", from_zero, 'for example "3 W"', unit="joule / second")
]
_Seconds = Annotated[
    Number, Measure("must be > 0 and finite", above_zero, 'for example "0.2 s"', True, unit="second")
]


@dataclass(frozen=True)
class DeviceClass:
    """A class of devices: how many clients have it, and how fast they compute and send.

    Attributes:
        share: of the clients; those of all classes sum to 1.
        speed: how fast it computes; 1 takes the kind's `per_gradient` seconds for a gradient.
        uplink: bits in a second that it sends.
        downlink: bits in a second that it receives.
        power: watts that it takes to compute, besides what it takes when idle.
        radio: watts that it takes to send or to receive.
    """

    share: Share
    speed: Positive = 1.0
    uplink: _Rate = 5e6
    downlink: _Rate = 10e6
    power: _Power = 3.0
    radio: _Power = 2.5


CLASSES: dict[str, dict[str, Any]] = {
    "fast": {"share": 0.33, "speed": 1.9, "uplink": 5.6e6, "downlink": 7.5e6, "power": 3.0, "radio": 3.7},
    "medium": {"share": 0.34, "speed": 1.0, "uplink": 3.3e6, "downlink": 4.3e6, "power": 3.0, "radio": 2.7},
    "slow": {"share": 0.33, "speed": 0.22, "uplink": 2.5e6, "downlink": 3.5e6, "power": 3.0, "radio": 2.4},
}
"""Thirds of phones: the 83rd, 50th and 17th percentile of the CPU score of 333 phones in the AI Benchmark
(2973, 1548, 345, relative to the median), and of the mean rates of the 19 phones in speed_distri.json of
FLASH (Yang et al., WWW 2021). The radio is LTE at that rate (see `energy`). 3 W is assumed, not measured."""

DEVICES = Family("device class", {"class": DeviceClass})


def _checked(given: Any) -> dict[str, dict[str, Any]]:
    """Return a table of classes with all their parameters.

    Raises:
        InputError: lists all faults.
    """
    if not isinstance(given, Mapping) or not given:
        rule, remedy = "must be a table of classes by name", "for example { fast = { share = 1.0 } }"
        raise InputError([Fault("classes", rule, given, remedy)])
    tables = {f"classes.{name}": _with_kind(table) for name, table in given.items()}
    found = DEVICES.resolve_all(tables)
    total = sum(table["share"] for table in found.values())
    if abs(total - 1.0) > 1e-6:
        raise InputError([Fault("classes", "must have shares that sum to 1", total, "adjust them")])
    return {
        field.removeprefix("classes."): {name: value for name, value in table.items() if name != "kind"}
        for field, table in found.items()
    }


def _with_kind(table: Any) -> Any:
    return {"kind": "class"} | dict(table) if isinstance(table, Mapping) else table


_Classes = Annotated[
    dict[str, dict[str, Any]],
    BeforeValidator(lambda given: for_pydantic("classes", lambda: _checked(given))),
]


class _Fleet:
    """The classes of a fleet, and who has which."""

    def __init__(self, classes: Mapping[str, Any], members: list[str] | None) -> None:
        self._names = list(classes)
        made = [DeviceClass(**table) for table in _checked(classes).values()]
        self.share, self.speed, self.uplink, self.downlink, self.power, self.radio = (
            np.array([getattr(one, name) for one in made], dtype=float)
            for name in ("share", "speed", "uplink", "downlink", "power", "radio")
        )
        self._bounds = np.cumsum(self.share)[:-1]
        self._given: IntArray | None = None
        if members is not None:
            if unknown := [name for name in members if name not in self._names]:
                raise ValueError(
                    f"members must be classes, got {unknown[0]!r}; {nearest(unknown[0], self._names)}"
                )
            self._given = np.array([self._names.index(name) for name in members])

    def prepare(self, entities: Entities) -> None:
        """Check that the list has a class for each client."""
        given = entities.population if self._given is None or entities.server else len(self._given)
        if given != entities.population:
            rule = f"must have a class for each of the {entities.population} clients"
            raise InputError([Fault("members", rule, given, "adjust the list, or leave it out")])

    def of(self, moment: Moment) -> IntArray:
        """Return the class of each client, by its place in the table."""
        if self._given is not None:
            return np.asarray(moment.pick(self._given))
        drawn = replace(moment, role="device", iteration=0).uniform("class")
        return np.searchsorted(self._bounds, drawn, side="right")

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the expected value: over the classes, or (N,) where each client's class is given."""
        return np.asarray(values @ self.share) if self._given is None else np.asarray(values[self._given])


@dataclass
class DeviceCompute:
    """λ = α·q with α = `per_gradient` / speed seconds, or that many joules at the class's power.

    Attributes:
        per_gradient: seconds that a device of speed 1 takes for a gradient of this model.
        classes: share, speed, uplink, downlink, power and radio of each class, by a name of your choice.
        members: the class of each client; drawn by the shares if left out.
        unit: "second", or "joule" for seconds times power.
    """

    per_gradient: _Seconds = 1.0
    classes: _Classes = field(default_factory=lambda: CLASSES)
    members: list[str] | None = None
    unit: Literal["second", "joule"] = "second"

    def __post_init__(self) -> None:
        self._fleet = _Fleet(self.classes, self.members)
        self._each = (self._fleet.power if self.unit == "joule" else 1.0) / self._fleet.speed

    @property
    def mean_cost(self) -> FloatArray:
        """E[α]."""
        return np.asarray(self.per_gradient * self._fleet.mean(self._each))

    def prepare(self, entities: Entities) -> None:
        """Check what depends on the number of clients before any work starts."""
        self._fleet.prepare(entities)

    def at(self, moment: Moment) -> Linear:
        return Linear(np.asarray(moment.pick(self.per_gradient) * self._each[self._fleet.of(moment)]))


@dataclass
class DeviceMessage:
    """φ = 8·bytes(k) / r in seconds, or that many joules at the power of the class's radio.

    On the uplink r is what the client's class sends. The server's message reaches every client, so the
    downlink is that of the slowest class.

    Attributes:
        classes: share, speed, uplink, downlink, power and radio of each class, by a name of your choice.
        members: the class of each client; drawn by the shares if left out.
        unit: "second", or "joule" for seconds times the power of the radio.
        bytes_per_component: of what is sent.
        bytes_per_message: of a message besides its components.
        counts: "components", or "bytes" for those that the codec writes, besides `bytes_per_message` − 20.
    """

    classes: _Classes = field(default_factory=lambda: CLASSES)
    members: list[str] | None = None
    unit: Literal["second", "joule"] = "second"
    bytes_per_component: PerComponent = COMPONENT
    bytes_per_message: PerMessage = MESSAGE
    counts: Written = "components"

    def __post_init__(self) -> None:
        self._fleet = _Fleet(self.classes, self.members)

    def prepare(self, entities: Entities) -> None:
        """Check what depends on the number of clients before any work starts."""
        self._fleet.prepare(entities)

    def at(self, moment: Moment) -> Affine:
        fleet = self._fleet
        if moment.entities.server:
            slowest = int(np.argmin(fleet.downlink))
            rate, radio = fleet.downlink[slowest], fleet.radio[slowest]
        else:
            mine = fleet.of(moment)
            rate, radio = fleet.uplink[mine], fleet.radio[mine]
        each = 8.0 * (radio if self.unit == "joule" else 1.0) / rate
        beta, gamma = message_parts(moment, self.counts, self.bytes_per_component, self.bytes_per_message)
        return Affine(np.asarray(beta * each), np.asarray(gamma * each))
