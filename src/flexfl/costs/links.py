"""Sending over a link: the bytes of messages, and the seconds they take at a bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from flexfl.arrays import Number
from flexfl.costs.available import with_away
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine
from flexfl.costs.parts import (
    COMPONENT,
    MESSAGE,
    PerComponent,
    PerMessage,
    Written,
    message_parts,
    prepare_parts,
)
from flexfl.costs.traces import Trace, TraceTable, open_trace
from flexfl.parameters import Measure, above_zero, from_zero
from flexfl.streams import Entities, Moment

_Rate = Annotated[
    Number,
    Measure("must be > 0 and finite", above_zero, 'for example "20 Mbit/s"', True, unit="bit / second"),
]
_Latency = Annotated[
    Number, Measure("must be ≥ 0 and finite", from_zero, 'for example "50 ms"', True, unit="second")
]


@dataclass(frozen=True)
class ByteMessage:
    """φ = β + γ·k in bytes: what a data plan counts, before any of it is sent.

    Attributes:
        bytes_per_component: γ; 5 is a value of four bytes and one for its place.
        bytes_per_message: β; 94 are 20 of the codec and 74 of IPv4, TCP and TLS.
        counts: "components", or "bytes" for φ = β − 20 + n, with n the bytes that the codec writes.
    """

    unit: ClassVar[str] = "byte"
    bytes_per_component: PerComponent = COMPONENT
    bytes_per_message: PerMessage = MESSAGE
    counts: Written = "components"

    def at(self, moment: Moment) -> Affine:
        return Affine(*message_parts(moment, self.counts, self.bytes_per_component, self.bytes_per_message))


@dataclass(frozen=True)
class Bandwidth:
    """φ = ℓ + 8·bytes(k) / r in seconds, with r constant or from a trace; while r = 0 nothing can be sent.

    Attributes:
        rate: r; with a trace, what a value of 1 in it stands for.
        trace: r over time, in `rate`: a path, a list, or a table with a path.
        latency: ℓ, seconds of a message besides, such as the round trip.
        bytes_per_component: of what is sent.
        bytes_per_message: of a message besides its components.
        counts: "components", or "bytes" for those that the codec writes, besides `bytes_per_message` − 20.
    """

    unit: ClassVar[str] = "second"
    rate: _Rate = 1e6
    trace: TraceTable = None
    latency: _Latency = 0.0
    bytes_per_component: PerComponent = COMPONENT
    bytes_per_message: PerMessage = MESSAGE
    counts: Written = "components"
    _trace: Trace | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_trace", open_trace(self.trace))

    @property
    def contents(self) -> str:
        """What tells apart the files that were read."""
        return "" if self._trace is None else self._trace.contents

    def prepare(self, entities: Entities) -> None:
        """Read and check the trace before any work starts."""
        prepare_parts(entities, trace=self._trace)

    def at(self, moment: Moment) -> Cost:
        sizes = message_parts(moment, self.counts, self.bytes_per_component, self.bytes_per_message)
        beta, gamma = (8.0 * part for part in sizes)
        latency, rate = moment.pick(self.latency), moment.pick(self.rate)
        if self._trace is None:
            return Affine(np.asarray(latency + beta / rate), np.asarray(gamma / rate))
        value = self._trace.at(moment, "bandwidth")
        away = value <= 0
        rate = rate * np.where(away, 1.0, value)
        return with_away(Affine(np.asarray(latency + beta / rate), np.asarray(gamma / rate)), away)
