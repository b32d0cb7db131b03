"""What cannot be had in an iteration: computing that costs infinitely much, of a client that is away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, FloatArray
from flexfl.costs.base import Cost


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
