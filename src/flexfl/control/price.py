"""A price instead of a queue and V: nothing to tune, and no unit matters.

P3.2 with λ for Φ/V reads  min ‖b − v‖² + λ·φ(v): λ is what a unit of cost must bring. It rises while more
is spent than the budget, and falls while less is, by its logarithm:

    ln λ ← ln λ + κ·(φ − φ̃_t) / φ̃

so that a cost and a budget in other units give the same decisions, and after T iterations with a constant
φ̃ the relative violation is exactly ln(λ_T/λ_0) / (κT) (docs/concepts/guarantees.md). With the horizon known
φ̃_t is what is left, shared out over the iterations left (`control.allowance`).

Deviation: the paper has queues, V and W; `Online` is that. Legend: λ price of sending · μ price of
computing · κ step · φ̃ budget of an iteration, φ̃_t in this one · E_k energy of the k largest components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number
from flexfl.compress.base import Choices, Searching
from flexfl.control import search
from flexfl.control.allowance import Allowance
from flexfl.control.baselines import FixedCompute, SendAll
from flexfl.control.budget import Budget
from flexfl.control.joint import JointBudget, JointView
from flexfl.control.joint_cost import JointCost
from flexfl.control.objective import cost_of_some
from flexfl.control.online import LEAST, OnlineCompute, OnlineSend
from flexfl.control.policy import ComputeRule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine
from flexfl.parameters import Rule as NumberRule
from flexfl.parameters import share
from flexfl.state import State
from flexfl.streams import Moment

_STEP = NumberRule(
    "must be in (0, 1]", share, "κ, how fast prices move; leave it out for 0.03", optional=True
)
CLEAR = 0.99
"""At just the largest ratio the first message would be a tie, which rounding would decide."""
_GAIN = 3.0
"""Near the end of a hard budget's period κ is 3/(iterations left): the price must still be able to follow."""
_FALL = 30.0
"""A price falls to e⁻³⁰ of its first value and no further: it must find its way back when costs return."""


def default_step(iterations: int) -> float:
    """Return κ for a run of T iterations: 0.03, or 20/T if that is more; T = 0 is not known.

    >>> default_step(3000), default_step(100)
    (0.03, 0.2)
    """
    return max(0.03, 20.0 / iterations if iterations else 0.0)


def next_price(log_price: Number, spent: Number, target: Number, budget: Number, step: float) -> FloatArray:
    """Return ln λ' = ln λ + κ·(φ − φ̃_t) / φ̃.

    >>> next_price(0.0, spent=3.0, target=1.0, budget=1.0, step=0.03)
    array(0.06)
    """
    with np.errstate(invalid="ignore"):  # ∞ without a limit
        return np.asarray(log_price + step * (np.asarray(spent) - target) / budget)


class LogPrice:
    """The prices of one cost, for all entities that decide together.

    A price begins with the first decision that has something to weigh (`begin`); until then it is NaN.

    Args:
        allowance: the budget, by queue and in this iteration.
        step: κ.

    Attributes:
        log: ln λ, one for each queue.
        unlimited: which entities have no budget.
    """

    relative = False

    def __init__(self, allowance: Allowance, step: float = 0.03) -> None:
        self.allowance, self.step = allowance, step
        self.unlimited: BoolArray = np.isinf(allowance.by_entity(allowance.limits))
        self.log = np.full(allowance.limits.shape, np.nan)
        self._least = np.full(allowance.limits.shape, np.nan)
        self._first = np.full(self.unlimited.shape, np.nan)  # of entities in the iteration they begin in

    @property
    def pressure(self) -> FloatArray:
        """λ that each entity decides against; NaN before it has begun."""
        log = self.allowance.by_entity(self.log)
        return np.exp(np.where(np.isnan(log), self._first, log))

    @property
    def priced(self) -> FloatArray:
        """The same, and 0 for entities without a budget or a price, to whom nothing costs anything."""
        return np.where(self.unlimited | np.isnan(self.pressure), 0.0, self.pressure)

    @property
    def waiting(self) -> BoolArray:
        """Which entities have a budget that is known and no price yet."""
        return ~self.unlimited & np.isnan(self.pressure) & np.isfinite(self.allowance.nominal_each)

    def begin(self, price: FloatArray) -> None:
        """Set the first price of entities; NaN for the others."""
        with np.errstate(divide="ignore"):
            self._first = np.where(np.isnan(self._first), np.log(price), self._first)

    @property
    def first(self) -> FloatArray:
        """ln λ of entities that begin in this iteration; NaN for the others."""
        return self._first

    def charge(self, spent: Number) -> None:
        """Move to the next iteration, given what each entity was charged in this one.

        Entities that share a budget begin with the highest of their prices.
        """
        self.take_over(self._first)
        own = self.allowance
        step = max(self.step, _GAIN / own.remaining) if own.hard else self.step
        moved = next_price(self.log, own.by_queue(spent), own.target, own.nominal, step)
        known = np.isfinite(own.nominal) & np.isfinite(own.limits)
        self.log = np.where(known, np.maximum(self._least, moved), self.log)

    def take_over(self, first: FloatArray) -> None:
        """Begin queues with the first prices of their entities."""
        own = self.allowance
        self._first = np.full(self._first.shape, np.nan)
        if not np.isfinite(first).any():
            return
        start = np.full(own.limits.shape, -np.inf)
        if own.members is None:
            start = np.where(np.isnan(first), start, first)
        else:
            np.maximum.at(start, own.members, np.where(np.isnan(first), -np.inf, first))
        new = np.isnan(self.log) & np.isfinite(start)
        self.log = np.where(new, start, self.log)
        self._least = np.where(new, start - _FALL, self._least)

    def as_remote(self) -> LogPrice:
        """Return the same prices as a client sees them: kept by the server."""
        return RemotePrice(self.allowance, self.step)

    def state(self) -> State:
        return {"log": self.log, "least": self._least}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name in ("log", "least"):
            if np.size(state[name]) != self.log.size:
                raise ValueError(f"{name} must have {self.log.size} prices, got {np.size(state[name])}")
        self.log, self._least = (
            np.array(state[name], dtype=float).reshape(self.log.shape) for name in ("log", "least")
        )
        self._first = np.full(self._first.shape, np.nan)


class RemotePrice(LogPrice):
    """A price that the server keeps, since others are charged to it too; it sends it once it has begun."""

    def learn(self, price: float | None) -> None:
        """Take over the price that the server has sent; None before it has begun."""
        self._first = np.full(self._first.shape, np.nan)
        with np.errstate(divide="ignore"):
            log = np.nan if price is None else np.log(price)
        self.log = np.full(self.log.shape, log)

    def charge(self, spent: Number) -> None:
        """Do nothing: the server charges it when it learns what was spent."""


class JointPrice(LogPrice):
    """The price of a budget over several decisions: a factor of what each of them began with.

    Objectives of computing (1/q) and of sending (‖b − v‖²) have different units; so each knob begins with a
    price of its own, at which its share of the budget is spent, and the factor moves them together.
    """

    relative = True

    def __init__(self, allowance: Allowance, step: float = 0.03) -> None:
        super().__init__(allowance, step)
        self.log = np.zeros(allowance.limits.shape)
        self._least = self.log - _FALL

    def as_remote(self) -> LogPrice:
        """Return the same factors as a client sees them: kept by the server."""
        return RemoteJointPrice(self.allowance, self.step)


class RemoteJointPrice(JointPrice):
    """Such a factor, kept by the server."""

    def learn(self, price: float) -> None:
        """Take over the factor that the server has sent."""
        self.log = np.full(self.log.shape, np.log(price))

    def charge(self, spent: Number) -> None:
        """Do nothing: the server charges it when it learns what was spent."""


def best_ratio(cost: Cost, choices: Choices, wanted: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the most that a unit of cost can bring, max_k E_k / φ(k), and φ at that k, of those wanted.

    φ counts from what sending nothing costs. For φ = β + γ·k and top-k by Dinkelbach's method: at the ratio
    ρ the set that gains most is {j : b_j² > ρ·γ}, whose own ratio is the next ρ; it ends at the largest.
    """
    energy = choices.energy
    ratio, spent = np.zeros(energy.shape), np.zeros(energy.shape)
    idle = np.asarray(cost(np.zeros(energy.shape, dtype=np.int64)))  # is paid whatever is decided
    if isinstance(choices, Searching) and choices.searching:
        return _searched_ratio(cost, choices, wanted, idle)
    if isinstance(cost, Affine) and choices.largest_first and choices.counts == "components":
        gamma = cost.per_component
        for _ in range(100):
            k, gained = choices.above(np.sqrt(ratio * gamma))
            price = cost(k) - idle
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.where(wanted & (k > 0) & (price > 0), gained / price, ratio)
            rises = found > ratio * (1 + 1e-12)
            ratio, spent = np.where(rises, found, ratio), np.where(rises, price, spent)
            if not rises.any():
                break
        return ratio, spent
    flat = ratio.reshape(-1), spent.reshape(-1), energy.reshape(-1)
    for place in np.flatnonzero(wanted).tolist():
        offers = choices.offers(place)
        costs = cost_of_some(cost, np.array([place]), energy.shape)(
            offers.sizes(choices.counts)[:, None]
        )[:, 0]
        extra, gained = costs - costs[0], flat[2][place] - offers.kept
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where((extra > 0) & np.isfinite(extra), gained / extra, 0.0)
        best = int(np.argmax(ratios))
        flat[0][place], flat[1][place] = ratios[best], extra[best]
    return ratio, spent


def _searched_ratio(
    cost: Cost, choices: Choices, wanted: BoolArray, idle: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the same by Dinkelbach's method, with the best amount at each ratio."""
    ratio, spent = np.zeros(idle.shape), np.zeros(idle.shape)
    for _ in range(100):
        amounts, gained = search.gains(np.where(wanted, 1.0, 0.0), ratio, cost, choices)
        price = np.asarray(cost(choices.sizes(amounts))) - idle
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
        return PriceSend(self._price(scope), np.square(scope.importance), scope.joint)

    def joint_queue(self, budget: JointBudget, allowance: Allowance) -> LogPrice:
        """Return the prices of a joint budget: factors of what each knob began with."""
        return JointPrice(allowance, self._step(allowance.iterations))

    def _price(self, scope: Scope) -> LogPrice:
        """Return prices for a budget; a single client that shares it decides against the server's."""
        allowance = scope.allowance or Allowance(Budget(), np.full(scope.entities.shape, np.inf))
        price = LogPrice(allowance, self._step(scope.iterations))
        if not allowance.remote:
            return price
        scope.remote.append(remote := price.as_remote())
        return remote

    def _step(self, iterations: int) -> float:
        return self.step or default_step(iterations)
