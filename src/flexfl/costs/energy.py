"""Energy in joules: power times seconds for computing, energy per bit and per message for sending.

A radio takes P = α·r + P₀ while it sends r bits in a second, so a bit takes α + P₀ / r joules. It takes ramp
energy to start, and tail energy while it waits for more before it sleeps: both are paid for each message,
since iterations lie further apart than a tail lasts (set `tail = false` where they do not).

Sources of `RADIOS`:

- lte, 3g, wifi: J. Huang et al., "A close examination of performance and power characteristics of 4G LTE
  networks", MobiSys 2012, Tables 3 and 4 (a phone of 2011). α up and down: 438.39 and 51.97 (LTE), 868.98
  and 122.12 (3G), 283.17 and 137.01 (Wi-Fi) mW per Mbit/s, that is nJ per bit. P₀: 1288.04, 817.88 and
  132.86 mW. Ramp: 1210.7 mW for 260.1 ms, 659.4 mW for 582.1 ms, 124.4 mW for 79.1 ms. Tail: 1060.0 mW for
  11.576 s (LTE), 803.9 mW for 8.088 s and 601.3 mW for 0.824 s (3G), 119.3 mW for 238.1 ms (Wi-Fi). Rates:
  LTE 5.64 and 12.74 Mbit/s, the medians of that paper; 3G 1 and 2, Wi-Fi 10 Mbit/s are assumed.
- nb-iot: u-blox SARA-N2 data sheet, 220 mA at 23 dBm sending, 46 mA receiving, 3.6 V. Rates 31.25 and
  27.2 kbit/s, its highest, are assumed; no ramp, no tail.
- lora: Semtech SX1276 data sheet, 29 mA at 13 dBm sending, 11.5 mA receiving, 3.3 V, at SF7, 125 kHz and
  coding rate 4/5: 5469 bit/s; no ramp, no tail.

Radios differ by a factor of several: give `per_bit` and `wake` where yours is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from flexfl.arrays import FloatArray, Number
from flexfl.costs.linear import Affine, Linear
from flexfl.costs.parts import COMPONENT, MESSAGE, PerComponent, PerMessage, Written, message_parts
from flexfl.parameters import Measure, above_zero, from_zero
from flexfl.registry import one_of
from flexfl.streams import Moment


@dataclass(frozen=True)
class Radio:
    """A radio technology: numbers for (uplink, downlink), joules, watts and bits in a second.

    Attributes:
        slope: α, joules per bit besides those of the base power.
        base: P₀, watts while it sends or receives.
        rate: r.
        ramp: joules to start.
        tail: joules until it sleeps again.
    """

    slope: tuple[float, float]
    base: tuple[float, float]
    rate: tuple[float, float]
    ramp: float = 0.0
    tail: float = 0.0

    def per_bit(self, downlink: bool, rate: Number | None = None) -> Number:
        """α + P₀ / r."""
        way = int(downlink)
        return self.slope[way] + self.base[way] / (self.rate[way] if rate is None else rate)


RADIOS = {
    "lte": Radio(
        (438.39e-9, 51.97e-9), (1.28804, 1.28804), (5.64e6, 12.74e6), 1.2107 * 0.2601, 1.0600 * 11.576
    ),
    "3g": Radio(
        (868.98e-9, 122.12e-9),
        (0.81788, 0.81788),
        (1e6, 2e6),
        0.6594 * 0.5821,
        0.8039 * 8.088 + 0.6013 * 0.824,
    ),
    "wifi": Radio((283.17e-9, 137.01e-9), (0.13286, 0.13286), (10e6, 10e6), 0.1244 * 0.0791, 0.1193 * 0.2381),
    "nb-iot": Radio((0.0, 0.0), (3.6 * 0.220, 3.6 * 0.046), (31.25e3, 27.2e3)),
    "lora": Radio((0.0, 0.0), (3.3 * 0.029, 3.3 * 0.0115), (5469.0, 5469.0)),
}

_Watts = Annotated[
    Number, Measure("must be > 0 and finite", above_zero, 'for example "3 W"', True, unit="joule / second")
]
_Seconds = Annotated[
    Number, Measure("must be > 0 and finite", above_zero, 'for example "0.2 s"', True, unit="second")
]


def _maybe(unit: str, remedy: str, zero: bool = True) -> Measure:
    rule, holds = ("must be ≥ 0 and finite", from_zero) if zero else ("must be > 0 and finite", above_zero)
    return Measure(rule, holds, remedy, True, optional=True, unit=unit)


@dataclass(frozen=True)
class EnergyCompute:
    """λ = α·q with α = power · seconds, in joules.

    Attributes:
        power: watts while it computes, besides what it takes when idle.
        seconds: of one gradient.
    """

    unit: ClassVar[str] = "joule"
    power: _Watts = 3.0
    seconds: _Seconds = 1.0

    @property
    def mean_cost(self) -> FloatArray:
        """α."""
        return np.multiply(self.power, self.seconds)

    def at(self, moment: Moment) -> Linear:
        return Linear(np.asarray(moment.pick(self.power) * moment.pick(self.seconds), dtype=float))


@dataclass(frozen=True)
class EnergyMessage:
    """φ = ramp + tail + (α + P₀ / r)·8·bytes(k) in joules: what a client's radio takes for a message.

    Uplink messages are sent by the radio. What it takes one client to receive is the cost of a downlink
    message.

    Attributes:
        technology: of the radio; where its figures come from is said in `costs/energy.py`.
        rate: r; by default as in the technology's source.
        tail: whether the radio falls asleep after each message, and so pays for its tail.
        per_bit: joules of a bit, instead of the technology's.
        wake: joules of a message besides its bits, instead of the technology's ramp and tail.
        bytes_per_component: of what is sent.
        bytes_per_message: of a message besides its components.
        counts: "components", or "bytes" for those that the codec writes, besides `bytes_per_message` − 20.
    """

    unit: ClassVar[str] = "joule"
    technology: Annotated[str, one_of(RADIOS)] = "lte"
    rate: Annotated[Number | None, _maybe("bit / second", 'for example "20 Mbit/s"', zero=False)] = None
    tail: bool = True
    per_bit: Annotated[Number | None, _maybe("joule / bit", 'for example "500 nJ / bit"')] = None
    wake: Annotated[Number | None, _maybe("joule", 'for example "0.3 J"')] = None
    bytes_per_component: PerComponent = COMPONENT
    bytes_per_message: PerMessage = MESSAGE
    counts: Written = "components"

    def at(self, moment: Moment) -> Affine:
        radio, downlink = RADIOS[self.technology], moment.role == "downlink"
        rate = None if self.rate is None else moment.pick(self.rate)
        per_bit = radio.per_bit(downlink, rate) if self.per_bit is None else moment.pick(self.per_bit)
        own = radio.ramp + radio.tail * self.tail
        wake = own if self.wake is None else moment.pick(self.wake)
        sizes = message_parts(moment, self.counts, self.bytes_per_component, self.bytes_per_message)
        beta, gamma = (8.0 * part for part in sizes)
        return Affine(np.asarray(wake + per_bit * beta), np.asarray(per_bit * gamma))
