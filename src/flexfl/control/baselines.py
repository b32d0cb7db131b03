"""Policies to compare with: the paper's randomised baseline, and the special cases users know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number, spread
from flexfl.compress.base import Magnitudes
from flexfl.control.policy import FixedCompute, Policy, SendAll, Unqueued
from flexfl.costs.base import Cost
from flexfl.streams import Moment


def components(ratio: Number, dim: int) -> IntArray:
    """k = round(k_r·d), at least one."""
    return np.asarray(np.maximum(1, np.rint(np.asarray(ratio) * dim)), dtype=np.int64)


@dataclass(frozen=True)
class RandomisedCompute(Unqueued):
    """q = min{1, λ̃ / E[α]}: the expected cost of an iteration equals the budget (Section V-A).

    mean_cost is E[α]. A cost model that does not know its mean leaves it out; then the cost
    of this iteration takes its place, which never exceeds the budget either.
    """

    budget: Number
    mean_cost: Number | None = None

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        price = np.asarray(cost(1.0) if self.mean_cost is None else self.mean_cost, dtype=np.float64)
        return spread(_chance(self.budget, price), moment.shape)


@dataclass(frozen=True)
class RandomisedSend(Unqueued):
    """Sends k = round(k_r·d) components with probability min{1, φ̃ / φ(k)}, else nothing.

    Where fewer than k components are non-zero, only those are sent, and their cost decides.
    """

    budget: Number
    ratio: Number

    def decide(self, cost: Cost, magnitudes: Magnitudes, moment: Moment) -> IntArray:
        nonzero, _ = magnitudes.above(0.0)
        k = np.minimum(components(self.ratio, moment.dim), nonzero)
        return np.where(moment.uniform("send") < _chance(self.budget, cost(k)), k, 0)


@dataclass(frozen=True)
class PeriodicSend(Unqueued):
    """Sends everything in every m-th iteration: m computations between two messages."""

    every: int

    def decide(self, cost: Cost, magnitudes: Magnitudes, moment: Moment) -> IntArray:
        nonzero, _ = magnitudes.above(0.0)
        return nonzero if (moment.iteration + 1) % self.every == 0 else np.zeros_like(nonzero)


@dataclass(frozen=True)
class TopKSend(Unqueued):
    """Sends the k = round(k_r·d) largest components in every iteration; the rest is fed back."""

    ratio: Number

    def decide(self, cost: Cost, magnitudes: Magnitudes, moment: Moment) -> IntArray:
        nonzero, _ = magnitudes.above(0.0)
        return np.minimum(components(self.ratio, moment.dim), nonzero)


def _chance(budget: Number, price: FloatArray) -> FloatArray:
    ratio = np.divide(
        budget, price, out=np.ones(np.broadcast_shapes(np.shape(budget), price.shape)), where=price > 0
    )
    return np.minimum(1.0, ratio)


def randomised(
    *,
    ratio: Number,
    compute: Number = np.inf,
    uplink: Number = np.inf,
    downlink: Number = np.inf,
    mean_cost: Number | None = None,
) -> Policy:
    """The paper's baseline for these budgets; infinity is no limit."""
    return Policy(
        RandomisedCompute(compute, mean_cost), RandomisedSend(uplink, ratio), RandomisedSend(downlink, ratio)
    )


def full() -> Policy:
    """Everyone computes and everything is sent: distributed SGD."""
    return Policy(FixedCompute(), SendAll(), SendAll())


def periodic(every: int) -> Policy:
    """Everyone computes; clients send every m-th iteration."""
    return Policy(FixedCompute(), PeriodicSend(every), SendAll())


def top_k(ratio: Number) -> Policy:
    """Everyone computes; clients and server send their k largest components, with error feedback."""
    return Policy(FixedCompute(), TopKSend(ratio), TopKSend(ratio))


def fixed_prob(prob: Number) -> Policy:
    """Clients compute with a fixed probability and send everything."""
    return Policy(FixedCompute(prob), SendAll(), SendAll())
