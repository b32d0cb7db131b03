"""The cost of a decision in several resources at once, as a rule weighs it: Φ·φ + Σ_j Q_j·φ_j."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flexfl.arrays import Count, FloatArray, Number
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine, Linear


@dataclass(frozen=True, eq=False)
class JointCost:
    """A knob's own cost φ, and those of other resources with the queues they are priced by.

    Called, it is φ. `total(Φ)` is Φ·φ + Σ_j Q_j·φ_j.
    """

    knob_cost: Cost
    others: tuple[tuple[FloatArray, Cost], ...]

    def __call__(self, amount: Number | Count) -> FloatArray:
        return self.knob_cost(amount)

    def total(self, Phi: Number) -> Cost:
        terms = [(np.asarray(Phi, dtype=float), self.knob_cost), *self.others]
        if all(isinstance(cost, Linear) for _, cost in terms):
            return Linear(_sum(_times(Q, cost.per_gradient) for Q, cost in terms))  # type: ignore[attr-defined]
        if all(isinstance(cost, Affine) for _, cost in terms):
            return Affine(
                _sum(_times(Q, cost.per_message) for Q, cost in terms),  # type: ignore[attr-defined]
                _sum(_times(Q, cost.per_component) for Q, cost in terms),  # type: ignore[attr-defined]
            )
        return _Sum(tuple(terms))


@dataclass(frozen=True, eq=False)
class _Sum:
    """Σ Q·φ, of costs of any kind."""

    terms: tuple[tuple[FloatArray, Cost], ...]

    @property
    def monotone(self) -> bool:
        return all(getattr(cost, "monotone", False) for _, cost in self.terms)

    @property
    def breakpoints(self) -> FloatArray:
        found = [np.ravel(getattr(cost, "breakpoints", ())) for _, cost in self.terms]
        return np.concatenate(found)

    def __call__(self, amount: Number | Count) -> FloatArray:
        return _sum(_times(Q, cost(amount)) for Q, cost in self.terms)


def scaled(cost: Cost, factor: float) -> Cost:
    """Return so many times a cost; one with a closed form keeps it."""
    if isinstance(cost, Linear):
        return Linear(factor * cost.per_gradient)
    if isinstance(cost, Affine):
        return Affine(factor * cost.per_message, factor * cost.per_component)
    return _Sum(((np.asarray(factor), cost),))


def _times(Q: FloatArray, cost: Number) -> FloatArray:
    """Return Q·φ; what costs infinitely much is not to be had, however empty the queue."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isposinf(cost), np.inf, Q * np.asarray(cost))


def _sum(terms: Any) -> FloatArray:
    return np.asarray(sum(terms, start=np.zeros(())))
