"""Costs that are linear in the decision (Section IV-E): λ = α·q for computing, φ = β + γ·k for sending.

P3.1–P3.3 have closed forms for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flexfl.arrays import Count, FloatArray, Number
from flexfl.counting import Counts
from flexfl.parameters import CostUnit, PerClientFromZero, PerClientPositive
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
    unit: CostUnit = ""

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
    unit: CostUnit = ""

    @property
    def mean_cost(self) -> FloatArray:
        """α."""
        return np.asarray(self.per_gradient, dtype=float)

    def at(self, moment: Moment) -> Linear:
        return Linear(np.asarray(moment.pick(self.per_gradient), dtype=float))


_LN2 = math.log(2.0)


@dataclass(frozen=True)
class Affine:
    """φ = 0 for k = 0, else β + γ·k (the constant-plus-linear cost of Section IV-E).

    β `per_message`, γ `per_component`. P3.2 and P3.3 have a closed form for it.
    """

    monotone: ClassVar[bool] = True
    per_message: FloatArray
    per_component: FloatArray

    def __call__(self, amount: Number | Count) -> FloatArray:
        k = np.asarray(amount)
        return np.where(k > 0, self.per_message + self.per_component * k, 0.0)


@dataclass(frozen=True)
class FadingChannel:
    """Gaussian capacity under Rayleigh fading (Section V-A): γ = s / (d·log2(1 + ζ)), ζ ~ χ²₂; s·β a message.

    A channel use carries C(ζ) = ½·log2(1 + ζ); γ·k counts channel uses for k components, relative to those
    for all d components at a signal-to-noise ratio of 1. The square of a Rayleigh gain is χ² with two
    degrees of freedom, whose inverse distribution function is −2·ln(1 − p).

    β `per_message`; s `factor` scales both parts: 1 for the uplink, 0.2 for the downlink, which has five
    times the bandwidth. k is what `counts` says: "components", or "bits" of the message as it is written, 32
    for a component.
    """

    per_message: PerClientFromZero = 0.05
    factor: PerClientPositive = 1.0
    unit: CostUnit = ""
    counts: Counts = "components"

    def at(self, moment: Moment) -> Affine:
        factor = np.asarray(moment.pick(self.factor), dtype=float)
        snr = -2.0 * np.log1p(-moment.uniform("fading"))
        capacity = np.log1p(snr) / _LN2
        return Affine(
            per_message=factor * np.asarray(moment.pick(self.per_message), dtype=float),
            per_component=factor / (moment.dim * capacity),
        )


@dataclass(frozen=True)
class ConstantMessage:
    """β for a message plus γ·k for its components, the same in every iteration.

    `whole_model` is γ·d: what the components of a message cost that carries every component. Given so, it
    means the same for models of any size. k is what `counts` says: "components", or "bits" of the message as
    it is written, 32 for a component.
    """

    per_message: PerClientFromZero = 0.0
    whole_model: PerClientFromZero = 1.0
    unit: CostUnit = ""
    counts: Counts = "components"

    def at(self, moment: Moment) -> Affine:
        gamma = np.asarray(moment.pick(self.whole_model), dtype=float) / moment.dim
        return Affine(np.asarray(moment.pick(self.per_message), dtype=float), gamma)
