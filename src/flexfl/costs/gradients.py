"""What a computation of several gradients costs."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.costs.base import Cost, CostModel, Measured
from flexfl.costs.parts import Wrapper, scaled
from flexfl.streams import Moment


class OfGradients(Wrapper):
    """H times a cost of computing, which is that of one gradient.

    Args:
        cost: of one gradient.
        gradients: H.
    """

    def __init__(self, cost: CostModel, gradients: int) -> None:
        self._cost, self._gradients = cost, gradients

    @property
    def one(self) -> CostModel:
        """The cost of one gradient."""
        return self._cost

    def at(self, moment: Moment) -> Cost:
        return scaled(self._cost.at(moment), np.asarray(float(self._gradients)))

    @property
    def mean_cost(self) -> FloatArray | None:
        """The expected cost of one computation, if that of a gradient is known."""
        inner = super().mean_cost
        return None if inner is None else np.asarray(self._gradients * inner)


def of_gradients(cost: CostModel, gradients: int) -> CostModel:
    """Return what a computation of H gradients costs; one that is measured is measured as a whole."""
    return cost if gradients == 1 or isinstance(cost, Measured) else OfGradients(cost, gradients)
