"""What a message would cost, and the most that may be sent for a given price; for rules that save up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control.baselines import FixedCompute, RandomisedCompute
from flexfl.control.policy import ComputeRule, Rule, Scope
from flexfl.costs.base import Cost
from flexfl.state import State

_ROUNDING = 1e-12


def price_of(cost: Cost, choices: Choices, amounts: IntArray) -> FloatArray:
    """Return what messages of these amounts cost, (...)."""
    return np.asarray(cost(choices.sizes(amounts)), dtype=np.float64)


def largest_within(cost: Cost, choices: Choices, limits: Number, dim: int) -> IntArray:
    """Return the largest amounts that cost no more than `limits`, (...), found by bisection over k.

    An amount that is returned is always within its limit; it is the largest if a message with more
    components never costs less.
    """
    shape = choices.energy.shape
    low = np.zeros(shape, dtype=np.int64)
    high = np.where(pays(cost(choices.sizes_of(np.ones(shape, dtype=np.int64))), limits), dim, 0)
    middle = high  # first whether everything is within the limit
    while (low < high).any():
        within = pays(price_of(cost, choices, choices.at_most(middle)), limits)
        low, high = np.where(within, middle, low), np.where(within, high, middle - 1)
        high = np.maximum(low, high)
        middle = (low + high + 1) // 2
    return choices.at_most(low)


def pays(price: Number, available: Number) -> BoolArray:
    """Return whether what is available is enough for a price, apart from rounding."""
    return np.asarray(np.asarray(price) <= np.asarray(available) * (1 + _ROUNDING))


class Savings(Rule):
    """A rule with a token bucket: what was not spent of the budget so far may be spent later.

    What an iteration may cost is `available`: what is saved, and the budget of this iteration. As long as
    no decision costs more than that, the average never exceeds the budget, at any time.
    """

    def __init__(self, income: FloatArray) -> None:
        self.income = np.asarray(income, dtype=np.float64)
        self.saved = np.zeros(self.income.shape)

    @property
    def available(self) -> FloatArray:
        return np.asarray(self.saved + self.income)

    def charge(self, spent: FloatArray) -> None:
        self.saved = np.asarray(self.available - spent)

    def state(self) -> State:
        return {"saved": self.saved}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.saved = np.array(state["saved"], dtype=np.float64).reshape(self.income.shape)


def compute_on_average(scope: Scope) -> ComputeRule:
    """Return the rule q = min{1, λ̃ / E[α]}, which spends the computing budget on average; q = 1 without one.

    Where E[α] is not known, the cost of the iteration takes its place.
    """
    if scope.budget is None:
        return FixedCompute()
    mean = None if scope.mean_cost is None else scope.entities.pick(scope.mean_cost)
    return RandomisedCompute(scope.limits, mean)
