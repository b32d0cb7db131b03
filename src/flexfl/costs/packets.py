"""A staircase: messages travel in packets, and a packet begun is a packet paid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flexfl.arrays import Count, FloatArray, Number
from flexfl.counting import Counts
from flexfl.parameters import CostUnit, PerClientFromZero, PerClientPositive
from flexfl.streams import Moment


@dataclass(frozen=True)
class Staircase:
    """φ = c·⌈k / m⌉: c `per_packet`, m `components` in a packet; `control.search` solves it."""

    monotone: ClassVar[bool] = True
    per_packet: FloatArray
    components: FloatArray

    def __call__(self, amount: Number | Count) -> FloatArray:
        return np.asarray(self.per_packet * np.ceil(np.asarray(amount) / self.components))


@dataclass(frozen=True)
class PacketMessage:
    """Each packet of `components_per_packet` components costs `per_packet`.

    What it counts as components is what `counts` says: those, or "bytes" or "bits" of the message as it is
    written, 32 bits for a component.
    """

    per_packet: PerClientFromZero = 0.01
    components_per_packet: PerClientPositive = 180
    unit: CostUnit = ""
    counts: Counts = "components"

    def at(self, moment: Moment) -> Staircase:
        return Staircase(
            np.asarray(moment.pick(self.per_packet), dtype=float),
            np.asarray(moment.pick(self.components_per_packet), dtype=float),
        )
