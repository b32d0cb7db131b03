"""The protocol of costs: one object plans and charges.

A `CostModel` describes how a cost varies with client and time. Asked in one iteration, it
gives a `Cost`, a function of the decision for every entity at once. The controller minimises
with that function and the queue is charged by the same function, so what was planned is what
is paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from flexfl.arrays import Count, FloatArray, Number
from flexfl.streams import Moment


@runtime_checkable
class Cost(Protocol):
    """The cost of a decision in one iteration.

    `amount` is q in [0, 1] for computing, or k (components sent) for sending. Its last axes
    are the entities'; axes in front of them are candidates that are weighed against each
    other. cost(0) is what doing nothing costs, cost(1) of a computing cost what computing
    with certainty costs.
    """

    def __call__(self, amount: Number | Count) -> FloatArray: ...


@runtime_checkable
class CostModel(Protocol):
    """How a cost varies with entity and time.

    A model of computing costs may also have `mean_cost`, the expected cost of one computation;
    the randomised baseline sets its probability from it.
    """

    def at(self, moment: Moment) -> Cost: ...


@dataclass(frozen=True)
class Linear:
    """λ = α·q (Section IV-E): computing, in expectation over the Bernoulli draw.

    α `per_gradient`. P3.1 has a closed form for it.
    """

    per_gradient: FloatArray

    def __call__(self, amount: Number | Count) -> FloatArray:
        return np.asarray(self.per_gradient * np.asarray(amount))


@dataclass(frozen=True)
class Affine:
    """φ = 0 for k = 0, else β + γ·k (the constant-plus-linear cost of Section IV-E).

    β `per_message`, γ `per_component`. P3.2 and P3.3 have a closed form for it.
    """

    per_message: FloatArray
    per_component: FloatArray

    def __call__(self, amount: Number | Count) -> FloatArray:
        k = np.asarray(amount)
        return np.where(k > 0, self.per_message + self.per_component * k, 0.0)
