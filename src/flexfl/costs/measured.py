"""Costs that a deployment measures: seconds of computing, bytes of messages.

A decision needs the cost before it is known, so it is told from what was measured before, smoothed:
ĉ ← ĉ + s·(c − ĉ) with `smoothing` s. What is charged for a message is what was really written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from flexfl.costs.base import Affine, Cost, Linear
from flexfl.streams import Moment


class Measured(ABC):
    """A `CostModel` that learns from what decisions really cost; `estimate` is all it remembers."""

    estimate: float

    @abstractmethod
    def at(self, moment: Moment) -> Cost: ...

    @abstractmethod
    def observe(self, amount: float, found: float) -> None:
        """`amount` (one computation, or k components) has cost `found`."""


@dataclass
class MeasuredCompute(Measured):
    """λ = α̂·q with α̂ in seconds; nothing is known before the first computation, which is free."""

    smoothing: float = 0.1
    estimate: float = field(default=0.0, init=False)

    def at(self, moment: Moment) -> Linear:
        return Linear(np.asarray(self.estimate))

    def observe(self, amount: float, found: float) -> None:
        self.estimate += (self.smoothing if self.estimate else 1.0) * (found / amount - self.estimate)


@dataclass
class MeasuredMessage(Measured):
    """φ = β + γ̂·k in bytes: β `per_message` is the codec's header, γ̂ what a component has taken.

    `per_component` is the first guess of γ̂: a value of four bytes and one that tells its place.
    """

    smoothing: float = 0.1
    per_message: float = 20.0
    per_component: float = 5.0
    estimate: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.estimate = self.per_component

    def at(self, moment: Moment) -> Affine:
        return Affine(np.asarray(self.per_message), np.asarray(self.estimate))

    def observe(self, amount: float, found: float) -> None:
        if amount:
            self.estimate += self.smoothing * (max(0.0, found - self.per_message) / amount - self.estimate)
