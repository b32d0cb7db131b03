"""Computing costs that are linear in the probability of computing, λ = α·q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, Number
from flexfl.costs.base import Linear
from flexfl.streams import Moment


@dataclass(frozen=True)
class UniformCompute:
    """α ~ U(low, high), drawn anew for each client and iteration (Section V-A: U(0, 1))."""

    low: Number = 0.0
    high: Number = 1.0

    @property
    def mean_cost(self) -> FloatArray:
        """E[α]."""
        return np.asarray((np.asarray(self.low) + np.asarray(self.high)) / 2)

    def at(self, moment: Moment) -> Linear:
        low, high = np.asarray(self.low), np.asarray(self.high)
        return Linear(np.asarray(low + (high - low) * moment.uniform("alpha")))
