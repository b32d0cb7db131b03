"""How long a message takes on a link, by the bytes that the codec writes: a time for `flexfl.control.timing`.

A cost is planned with, before anybody knows the bytes; a time is found afterwards, when they are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.parameters import Measure, above_zero, from_zero
from flexfl.registry import Family
from flexfl.streams import Moment

_Rate = Annotated[
    Number,
    Measure("must be > 0 and finite", above_zero, 'for example "20 Mbit/s"', True, unit="bit / second"),
]
_Latency = Annotated[
    Number, Measure("must be ≥ 0 and finite", from_zero, 'for example "20 ms"', True, unit="second")
]
_Bytes = Annotated[
    Number, Measure("must be ≥ 0 and finite", from_zero, 'for example "300 B"', True, unit="byte")
]


@dataclass(frozen=True)
class Transfer:
    """ℓ + 8·max{0, ι + 𝟙[k > 0]·(β + n) − σ} / r seconds for a message of n bytes.

    r `rate` · ℓ `latency` · β `per_message` · ι `idle` · σ `burst`.
    """

    rate: FloatArray
    latency: FloatArray
    per_message: FloatArray
    idle: FloatArray
    burst: FloatArray

    def of_bytes(self, components: IntArray, nbytes: IntArray) -> FloatArray:
        """Return the seconds of messages of k components and n bytes."""
        sent = np.where(components > 0, self.per_message + nbytes, 0.0)
        queued = np.maximum(0.0, self.idle + sent - self.burst)
        return np.asarray(self.latency + 8.0 * queued / self.rate)


@dataclass(frozen=True)
class LinkRate:
    """The bytes of a message at the rate of a link; `uplink = "200 kbit/s"` is short for it.

    Attributes:
        rate: bits in a second; of the downlink, that of the slowest client.
        latency: seconds that every iteration takes besides.
        per_message: bytes that a message takes besides its own.
        idle: bytes that flow in every iteration, whether or not there is a message.
        burst: bytes that pass at once, on a link that is limited by a token bucket and was quiet before.
    """

    unit: ClassVar[str] = "second"
    rate: _Rate
    latency: _Latency = 0.0
    per_message: _Bytes = 0.0
    idle: _Bytes = 0.0
    burst: _Bytes = 0.0

    def at(self, moment: Moment) -> Transfer:
        given = self.rate, self.latency, self.per_message, self.idle, self.burst
        return Transfer(*(np.asarray(moment.pick(value), dtype=float) for value in given))


LINK_TIMES = Family("time on a link", {"rate": LinkRate})
