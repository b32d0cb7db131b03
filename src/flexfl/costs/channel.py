"""The fading channel of Section V-A."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flexfl.arrays import Number
from flexfl.costs.base import Affine
from flexfl.streams import Moment

_LN2 = math.log(2.0)


@dataclass(frozen=True)
class FadingChannel:
    """Gaussian capacity under Rayleigh fading: γ = s / (d·log2(1 + ζ)), ζ ~ χ²₂, and s·β a message.

    A channel use carries C(ζ) = ½·log2(1 + ζ); γ·k counts channel uses for k components,
    relative to those for all d components at a signal-to-noise ratio of 1. The square of a
    Rayleigh gain is χ² with two degrees of freedom, whose inverse distribution function is
    −2·ln(1 − p).

    β `per_message`; s `factor` scales both parts: 1 for the uplink, 0.2 for the downlink,
    which has five times the bandwidth.
    """

    per_message: Number = 0.05
    factor: Number = 1.0

    def at(self, moment: Moment) -> Affine:
        factor = np.asarray(self.factor, dtype=float)
        snr = -2.0 * np.log1p(-moment.uniform("fading"))
        capacity = np.log1p(snr) / _LN2
        return Affine(
            per_message=factor * np.asarray(self.per_message, dtype=float),
            per_component=factor / (moment.dim * capacity),
        )
