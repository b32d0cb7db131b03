"""What cannot be had in an iteration: computing or sending that costs infinitely much, of a client away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, FloatArray
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine, Linear


def unavailable(costs: Iterable[Cost], q: FloatArray) -> BoolArray | None:
    """Return which entities cannot compute now, since a cost would be infinite; None for nobody."""
    away = np.zeros(np.shape(q), dtype=bool)
    for cost in costs:
        if not np.isfinite(np.asarray(cost(q))).all():
            away = away | (np.asarray(cost(np.ones(np.shape(q)))) == np.inf)
    return away if away.any() else None


@dataclass(frozen=True)
class Available:
    """A cost for those who can pay it; 0 for the others."""

    cost: Cost
    available: BoolArray

    def __call__(self, amount: Any) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return np.where(self.available, self.cost(amount), 0.0)


@dataclass(frozen=True)
class LinearOrAway(Linear):
    """λ = α·q, and ∞ for those who are `away`, to whom α does not apply."""

    away: BoolArray

    def __call__(self, amount: Any) -> FloatArray:
        return np.where(self.away & (np.asarray(amount) > 0), np.inf, super().__call__(amount))


@dataclass(frozen=True)
class AffineOrAway(Affine):
    """φ = β + γ·k for k > 0, and ∞ for those who are `away`, to whom β and γ do not apply."""

    away: BoolArray

    def __call__(self, amount: Any) -> FloatArray:
        return np.where(self.away & (np.asarray(amount) > 0), np.inf, super().__call__(amount))

    @property
    def present(self) -> Affine:
        """The cost as if nobody were away, for what is sent all the same."""
        return Affine(self.per_message, self.per_component)


@dataclass(frozen=True)
class CostOrAway:
    """A cost of any form, and ∞ for those who are `away`."""

    present: Cost
    away: BoolArray

    @property
    def monotone(self) -> bool:
        return bool(getattr(self.present, "monotone", False))

    def __call__(self, amount: Any) -> FloatArray:
        return np.where(self.away & (np.asarray(amount) > 0), np.inf, self.present(amount))


def with_away(cost: Cost, away: BoolArray) -> Cost:
    """Return a cost that is infinite for those who are away; with a closed form where the cost has one."""
    if not away.any():
        return cost
    away = away | getattr(cost, "away", False)
    if isinstance(cost, Linear):
        return LinearOrAway(cost.per_gradient, away)
    if isinstance(cost, Affine):
        return AffineOrAway(cost.per_message, cost.per_component, away)
    return CostOrAway(getattr(cost, "present", cost), away)
