"""Costs of computing that are linear in the probability of computing: λ = α·q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flexfl.arrays import Count, FloatArray, Number
from flexfl.parameters import PerClientFromZero, PerClientPositive
from flexfl.streams import Moment


@dataclass(frozen=True)
class Linear:
    """λ = α·q (Section IV-E): computing, in expectation over the Bernoulli draw.

    α `per_gradient`. P3.1 has a closed form for it.
    """

    monotone: ClassVar[bool] = True
    per_gradient: FloatArray

    def __call__(self, amount: Number | Count) -> FloatArray:
        return np.asarray(self.per_gradient * np.asarray(amount))


@dataclass(frozen=True)
class UniformCompute:
    """α ~ U(low, high), drawn anew for each client and iteration (Section V-A: U(0, 1))."""

    low: PerClientFromZero = 0.0
    high: PerClientPositive = 1.0

    def __post_init__(self) -> None:
        low, high = np.asarray(self.low), np.asarray(self.high)
        if low.ndim and high.ndim and low.shape != high.shape:
            raise ValueError(f"low and high must be for the same clients, got {low.size} and {high.size}")
        if np.any(high < low):
            raise ValueError("low must be at most high; swap them")

    @property
    def mean_cost(self) -> FloatArray:
        """E[α]."""
        return np.asarray((np.asarray(self.low) + np.asarray(self.high)) / 2)

    def at(self, moment: Moment) -> Linear:
        low, high = moment.pick(self.low), moment.pick(self.high)
        return Linear(np.asarray(low + (high - low) * moment.uniform("alpha")))


@dataclass(frozen=True)
class ConstantCompute:
    """λ = α·q with the same α in every iteration."""

    per_gradient: PerClientFromZero = 1.0

    @property
    def mean_cost(self) -> FloatArray:
        """α."""
        return np.asarray(self.per_gradient, dtype=float)

    def at(self, moment: Moment) -> Linear:
        return Linear(np.asarray(moment.pick(self.per_gradient), dtype=float))
