"""Costs whose coefficients never change; one number, or one for each client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, Number
from flexfl.costs.base import Affine, Linear
from flexfl.streams import Moment


@dataclass(frozen=True)
class ConstantCompute:
    """λ = α·q with the same α in every iteration."""

    per_gradient: Number = 1.0

    @property
    def mean_cost(self) -> FloatArray:
        return np.asarray(self.per_gradient, dtype=float)

    def at(self, moment: Moment) -> Linear:
        return Linear(np.asarray(self.per_gradient, dtype=float))


@dataclass(frozen=True)
class ConstantMessage:
    """β for a message plus γ·k for its components, the same in every iteration.

    `whole_model` is γ·d: what the components of a message cost that carries every component.
    Given so, it means the same for models of any size.
    """

    per_message: Number = 0.0
    whole_model: Number = 1.0

    def at(self, moment: Moment) -> Affine:
        gamma = np.asarray(self.whole_model, dtype=float) / moment.dim
        return Affine(np.asarray(self.per_message, dtype=float), gamma)
