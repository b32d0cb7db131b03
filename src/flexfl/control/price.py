"""A price instead of a queue and V: nothing to tune, and no unit matters.

P3.2 with λ for Φ/V reads  min ‖b − v‖² + λ·φ(v): λ is what a unit of cost must bring. It rises while more
is spent than the budget, and falls while less is, by its logarithm:

    ln λ ← ln λ + κ·(φ − φ̃_t) / φ̃

so that a cost and a budget in other units give the same decisions, and after T iterations with a constant
φ̃ the relative violation is exactly ln(λ_T/λ_0) / (κT) (docs/concepts/guarantees.md). With the horizon known
φ̃_t is what is left, shared out over the iterations left (`control.allowance`). Under a schedule η_t = η·f_t
messages are weighed at λ·f_t² (`control.log_price`).

Deviation: the paper has queues, V and W; `Online` is that. Legend: λ price of sending · μ price of
computing · κ step · φ̃ budget of an iteration, φ̃_t in this one · E_k energy of the k largest components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number
from flexfl.compress.base import Choices, Searching
from flexfl.control import search
from flexfl.control.allowance import Allowance
from flexfl.control.baselines import FixedCompute, SendAll
from flexfl.control.budget import Budget
from flexfl.control.joint import JointBudget, JointView
from flexfl.control.joint_cost import JointCost
from flexfl.control.log_price import JointPrice as JointPrice
from flexfl.control.log_price import LogPrice as LogPrice
from flexfl.control.log_price import RemoteJointPrice as RemoteJointPrice
from flexfl.control.log_price import RemotePrice as RemotePrice
from flexfl.control.log_price import default_step as default_step
from flexfl.control.log_price import next_price as next_price
from flexfl.control.objective import cost_of_some
from flexfl.control.online import LEAST, OnlineCompute, OnlineSend
from flexfl.control.policy import ComputeRule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine
from flexfl.learning_rate import Factor
from flexfl.parameters import Rule as NumberRule
from flexfl.parameters import share
from flexfl.streams import Moment

_STEP = NumberRule(
    "must be in (0, 1]", share, "κ, how fast prices move; leave it out for 0.03", optional=True
)
CLEAR = 0.99
"""At just the largest ratio the first message would be a tie, which rounding would decide."""


def best_ratio(cost: Cost, choices: Choices, wanted: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the most that a unit of cost can bring, max_k E_k / φ(k), and φ at that k, of those wanted.

    φ counts from what sending nothing costs. For φ = β + γ·k and top-k by Dinkelbach's method: at the ratio
    ρ the set that gains most is {j : b_j² > ρ·γ}, whose own ratio is the next ρ; it ends at the largest.
    """
    energy = choices.energy
    idle = np.asarray(cost(np.zeros(energy.shape, dtype=np.int64)))  # is paid whatever is decided
    if isinstance(choices, Searching) and choices.searching:

        def searched(ratio: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
            amounts, gained = search.gains(V, np.where(wanted, ratio, 1.0), cost, choices)
            return amounts, gained, np.asarray(cost(choices.sizes(amounts))) - idle

        V = np.where(wanted, 1.0, 0.0)  # the others have nothing that is worth a message
        return _highest_ratio(searched, wanted)
    if isinstance(cost, Affine) and choices.largest_first and choices.counts == "components":

        def largest(ratio: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
            k, gained = choices.above(np.sqrt(ratio * cost.per_component))
            return k, gained, cost(k) - idle

        return _highest_ratio(largest, wanted)
    ratio, spent = np.zeros(energy.shape), np.zeros(energy.shape)
    flat = ratio.reshape(-1), spent.reshape(-1), energy.reshape(-1)
    for place in np.flatnonzero(wanted).tolist():
        offers = choices.offers(place)
        costs = cost_of_some(cost, np.array([place]), energy.shape)(offers.sizes(choices.counts)[:, None])[
            :, 0
        ]
        extra, gained = costs - costs[0], flat[2][place] - offers.kept
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where((extra > 0) & np.isfinite(extra), gained / extra, 0.0)
        best = int(np.argmax(ratios))
        flat[0][place], flat[1][place] = ratios[best], extra[best]
    return ratio, spent


def _highest_ratio(
    best_at: Callable[[FloatArray], tuple[IntArray, FloatArray, FloatArray]], wanted: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the highest ratio of gain to price, and that price, by Dinkelbach's method.

    Args:
        best_at: the best amounts where a unit of cost is worth so much, what they gain, and their price.
        wanted: for whom; 0 for others.
    """
    ratio, spent = np.zeros(wanted.shape), np.zeros(wanted.shape)
    for _ in range(100):
        amounts, gained, price = best_at(ratio)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(wanted & (amounts > 0) & (price > 0), gained / price, ratio)
        rises = found > ratio * (1 + 1e-12)
        ratio, spent = np.where(rises, found, ratio), np.where(rises, price, spent)
        if not rises.any():
            break
    return ratio, spent


class PriceCompute(OnlineCompute):
    """Solves P3.1 at a price: min 1/q + μ·λ(q), with λ = α·q  q = min{1, 1/√(μα)}.

    μ begins where the expected cost is the budget: μ₀ = α̂/λ̃², with α̂ = E[α] where that is known, else the
    first α. A rate whose iterations have not been timed yet has no price, and q = 1.
    """

    queue: LogPrice  # type: ignore[assignment]

    def __init__(
        self, price: LogPrice, joint: JointView | None, least: Number, mean_cost: Number | None
    ) -> None:
        super().__init__(price, 1.0, joint, least)  # type: ignore[arg-type]
        self._mean = mean_cost

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        ones = np.ones(moment.shape)
        if (waiting := self.queue.waiting).any():
            own = cost.knob_cost if isinstance(cost, JointCost) else cost
            alpha = np.asarray(own(ones) if self._mean is None else self._mean * ones)
            known = waiting & np.isfinite(alpha) & (alpha > 0)
            with np.errstate(invalid="ignore"):
                self.queue.begin(
                    np.where(known, alpha / np.square(self.queue.allowance.nominal_each), np.nan)
                )
        if self.joint is not None:
            self.joint.begin(cost, lambda own, waiting, budget: own(ones) / np.square(budget))
        return super().decide(cost, moment)


class PriceSend(OnlineSend):
    """Solves P3.2 (or P3.3) at a price: min ‖b − v‖² + λ·φ(v).

    λ begins on the first b that is not zero with λ₀ = 0.99 · max_k E_k/φ(k) · max{1, φ at that k / φ̃}: one
    message is worth it, or as many times less as it is dearer than an iteration's budget.
    """

    queue: LogPrice  # type: ignore[assignment]

    def __init__(self, price: LogPrice, tradeoff: Number, joint: JointView | None) -> None:
        super().__init__(price, tradeoff, joint)  # type: ignore[arg-type]

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        energy, price = choices.energy, self.queue
        if (waiting := price.waiting & (energy > 0)).any():
            own = cost.knob_cost if isinstance(cost, JointCost) else cost
            price.begin(self._first(own, choices, waiting, price.allowance.nominal_each))
        if self.joint is not None:
            self.joint.begin(cost, lambda own, waiting, budget: self._first(own, choices, waiting, budget))
        amounts = super().decide(cost, choices, moment)
        held = ~price.unlimited & np.isnan(price.pressure)  # nothing to weigh, or no budget known yet
        if self.joint is not None:
            held = held | self.joint.untimed
        if not held.any():
            return amounts
        extra = np.asarray(cost(choices.sizes(amounts))) - cost(np.zeros(moment.shape, dtype=np.int64))
        return np.where(held & (extra > 0), 0, amounts)  # what is free may be sent

    def _first(self, cost: Cost, choices: Choices, wanted: BoolArray, budget: FloatArray) -> FloatArray:
        """Return the first price of those wanted; NaN for the others."""
        wanted = wanted & (choices.energy > 0)
        ratio, spent = best_ratio(cost, choices, wanted)
        with np.errstate(invalid="ignore", divide="ignore"):
            first = CLEAR * self.tradeoff * ratio * np.maximum(1.0, spent / budget)
        return np.where(wanted & (first > 0) & np.isfinite(first), first, np.nan)


@dataclass(frozen=True)
class Price:
    """Keeps to budgets by a price for each, with nothing to tune. A knob without a budget is not controlled.

    Budgets are kept to the end: with T known, no entity spends more than T times its average (`hard` = false
    lets the average come to the budget only). `step` is κ: 0.03, and in a run of less than 667 iterations
    20/T, so that a price finds its level in time; `min_prob` is the least q.
    """

    step: Annotated[float | None, _STEP] = None
    min_prob: Annotated[Any, LEAST] = 0.0
    keeps_totals: ClassVar[bool] = True
    follows_clock: ClassVar[bool] = True
    uses_horizon: ClassVar[bool] = True

    def compute_rule(self, scope: Scope) -> ComputeRule:
        if scope.budget is None and scope.joint is None:
            return FixedCompute()
        mean = None if scope.mean_cost is None else scope.entities.pick(scope.mean_cost)
        return PriceCompute(self._price(scope), scope.joint, scope.pick(self.min_prob), mean)

    def send_rule(self, scope: Scope) -> SendRule:
        if scope.budget is None and scope.joint is None:
            return SendAll()
        return PriceSend(self._price(scope, scope.factor), np.square(scope.importance), scope.joint)

    def joint_queue(self, budget: JointBudget, allowance: Allowance) -> LogPrice:
        """Return the prices of a joint budget: factors of what each knob began with."""
        return JointPrice(allowance, self._step(allowance.iterations))

    def _price(self, scope: Scope, factor: Factor = lambda t: 1.0) -> LogPrice:
        """Return prices for a budget; a single client that shares it decides against the server's."""
        allowance = scope.allowance or Allowance(Budget(), np.full(scope.entities.shape, np.inf))
        price = LogPrice(allowance, self._step(scope.iterations), factor)
        if not allowance.remote:
            return price
        scope.remote.append(remote := price.as_remote())
        return remote

    def _step(self, iterations: int) -> float:
        return self.step or default_step(iterations)
