"""Policies to compare with: the paper's randomised baseline, and the special cases users know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control.policy import ComputeRule, Rule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.parameters import KNOBS, Whole, share
from flexfl.parameters import Rule as NumberRule
from flexfl.streams import Moment

Ratio = Annotated[
    Any,
    NumberRule(
        "must be in (0, 1]",
        share,
        "k_r is the share of components in a message; 1 sends all",
        per_client=True,
        by_knob=True,
        knobs=("uplink", "downlink"),
        example="send_ratio = 0.01",
    ),
]
Prob = Annotated[
    Any,
    NumberRule(
        "must be in (0, 1]",
        share,
        "1 computes in every iteration",
        per_client=True,
        example="compute_prob = 0.5",
    ),
]


def components_of(ratio: Number, dim: int) -> IntArray:
    """Return k = round(k_r·d), at least one.

    >>> components_of(0.01, 250)
    array(2)
    """
    return np.asarray(np.maximum(1, np.rint(np.asarray(ratio) * dim)), dtype=np.int64)


class FixedCompute(Rule):
    """Computes with the same probability in every iteration; 1 is full participation."""

    def __init__(self, prob: Number = 1.0) -> None:
        self.prob = np.asarray(prob, dtype=np.float64)

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        return np.broadcast_to(self.prob, moment.shape)


class RandomisedCompute(Rule):
    """q = min{1, λ̃ / E[α]}: the expected cost of an iteration equals the budget (Section V-A).

    mean_cost is E[α]. Where the cost model does not have it, the cost of this iteration takes its place,
    which never exceeds the budget either.
    """

    def __init__(self, budget: Number, mean_cost: Number | None = None) -> None:
        self.budget, self.mean_cost = budget, mean_cost

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        price = np.asarray(
            cost(np.ones(moment.shape)) if self.mean_cost is None else self.mean_cost, dtype=np.float64
        )
        return np.broadcast_to(chance(self.budget, price), moment.shape)


class SendAll(Rule):
    """Sends everything in every iteration."""

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        return choices.everything()


class RandomisedSend(Rule):
    """Sends k = round(k_r·d) components with probability min{1, φ̃ / φ(k)}, else nothing.

    Where fewer than k components are non-zero, only those are sent, and their cost decides.
    """

    def __init__(self, budget: Number, ratio: Number) -> None:
        self.budget, self.ratio = budget, ratio

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        amounts = choices.at_most(components_of(self.ratio, moment.dim))
        price = np.asarray(cost(choices.sizes(amounts)))
        return np.where(moment.uniform("send") < chance(self.budget, price), amounts, 0)


class PeriodicSend(Rule):
    """Sends everything in every m-th iteration: m computations between two messages."""

    def __init__(self, every: int) -> None:
        self.every = every

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        if (moment.iteration + 1) % self.every == 0:
            return choices.everything()
        return np.zeros(moment.shape, dtype=np.int64)


class TopKSend(Rule):
    """Sends the k = round(k_r·d) largest components in every iteration; the rest is fed back."""

    def __init__(self, ratio: Number) -> None:
        self.ratio = ratio

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        return choices.at_most(components_of(self.ratio, moment.dim))


def chance(budget: Number, price: FloatArray) -> FloatArray:
    """Return min{1, φ̃ / φ}, with which doing something at price φ costs φ̃ on average; 1 if it is free."""
    everyone = np.ones(np.broadcast_shapes(np.shape(budget), price.shape))
    payable = (price > 0) & (price < np.inf)  # whoever cannot pay, is away: the knob sees to that
    ratio = np.divide(budget, price, out=everyone, where=payable)
    return np.minimum(1.0, ratio)


@dataclass(frozen=True)
class Randomised:
    """The paper's baseline: fixed probabilities that meet the budgets on average."""

    send_ratio: Ratio
    decides: ClassVar[tuple[str, ...]] = KNOBS
    keeps_budgets: ClassVar[bool] = True

    def compute_rule(self, scope: Scope) -> ComputeRule:
        if scope.budget is None:
            return FixedCompute()
        mean = None if scope.mean_cost is None else scope.entities.pick(scope.mean_cost)
        return RandomisedCompute(scope.limits, mean)

    def send_rule(self, scope: Scope) -> SendRule:
        return RandomisedSend(scope.limits, scope.pick(self.send_ratio))


@dataclass(frozen=True)
class Full:
    """Everyone computes and everything is sent: distributed SGD. Budgets are not used."""

    decides: ClassVar[tuple[str, ...]] = KNOBS
    keeps_budgets: ClassVar[bool] = False

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return FixedCompute()

    def send_rule(self, scope: Scope) -> SendRule:
        return SendAll()


@dataclass(frozen=True)
class Periodic:
    """Everyone computes; clients send everything in every `send_every`-th iteration, the server always.

    Budgets are not used.
    """

    send_every: Annotated[int, Whole(1, "m: send in every m-th iteration")]
    decides: ClassVar[tuple[str, ...]] = ("uplink",)
    keeps_budgets: ClassVar[bool] = False

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return FixedCompute()

    def send_rule(self, scope: Scope) -> SendRule:
        return PeriodicSend(self.send_every) if scope.knob == "uplink" else SendAll()


@dataclass(frozen=True)
class TopKRatio:
    """Everyone computes; clients and server send their k_r·d largest components, with error feedback.

    Budgets are not used.
    """

    send_ratio: Ratio
    decides: ClassVar[tuple[str, ...]] = ("uplink", "downlink")
    keeps_budgets: ClassVar[bool] = False

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return FixedCompute()

    def send_rule(self, scope: Scope) -> SendRule:
        return TopKSend(scope.pick(self.send_ratio))


@dataclass(frozen=True)
class FixedProb:
    """Clients compute with a fixed probability; everything is sent. Budgets are not used."""

    compute_prob: Prob
    decides: ClassVar[tuple[str, ...]] = ("compute",)
    keeps_budgets: ClassVar[bool] = False

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return FixedCompute(scope.pick(self.compute_prob))

    def send_rule(self, scope: Scope) -> SendRule:
        return SendAll()
