"""Costs that are measured: seconds of computing, bytes of messages.

A decision needs the cost before it is known, so it is estimated from what was measured before, smoothed:
ĉ ← ĉ + s·(c − ĉ) with `smoothing` s. What is charged for a message is what was really written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import Count, FloatArray, Number
from flexfl.costs.linear import Affine, Linear
from flexfl.parameters import Rule, Share, from_zero
from flexfl.state import State
from flexfl.streams import Moment

_Bytes = Annotated[float, Rule("must be ≥ 0 and finite", from_zero, "give a number of bytes")]


@dataclass
class MeasuredCompute:
    """λ = α̂·q with α̂ in seconds; before the first computation nothing is known, and it is free."""

    needs_clock: ClassVar[bool] = True
    """Only available in deployments: a simulation does not run at the clients' pace."""
    unit: ClassVar[str] = "second"
    smoothing: Share = 0.1
    estimate: FloatArray = field(default_factory=lambda: np.zeros(()), init=False)

    def at(self, moment: Moment) -> Linear:
        self.estimate = np.broadcast_to(self.estimate, moment.shape)
        return Linear(self.estimate)

    def observe(self, amount: Number | Count, cost: Number) -> None:
        found = np.asarray(cost, dtype=float) / np.asarray(amount)
        share = np.where(self.estimate > 0, self.smoothing, 1.0)
        self.estimate = np.asarray((1.0 - share) * self.estimate + share * found)

    def state(self) -> State:
        return {"estimate": np.asarray(self.estimate)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.estimate = np.asarray(state["estimate"], dtype=float)


@dataclass
class MeasuredMessage:
    """φ = β + γ̂·k in bytes: β `per_message` is the codec's header, γ̂ what a component has taken so far.

    `per_component` is the first guess of γ̂: a value of four bytes and one for its place.
    """

    unit: ClassVar[str] = "byte"
    smoothing: Share = 0.1
    per_message: _Bytes = 20.0
    per_component: _Bytes = 5.0
    estimate: FloatArray = field(default_factory=lambda: np.zeros(()), init=False)

    def __post_init__(self) -> None:
        self.estimate = np.asarray(self.per_component, dtype=float)

    def at(self, moment: Moment) -> Affine:
        self.estimate = np.broadcast_to(self.estimate, moment.shape)
        return Affine(np.asarray(self.per_message), self.estimate)

    def observe(self, amount: Number | Count, cost: Number) -> None:
        k = np.asarray(amount)
        found = np.maximum(0.0, np.asarray(cost, dtype=float) - self.per_message) / np.maximum(k, 1)
        share = np.where(k > 0, self.smoothing, 0.0)
        self.estimate = np.asarray((1.0 - share) * self.estimate + share * found)

    def state(self) -> State:
        return {"estimate": np.asarray(self.estimate)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.estimate = np.asarray(state["estimate"], dtype=float)
