"""Client sampling as in FedAvg: who takes part in an iteration computes and sends in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control.affordable import price_of
from flexfl.control.baselines import FixedCompute, RandomisedSend, Ratio, chance, components_of
from flexfl.control.policy import ComputeRule, Rule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.parameters import KNOBS, share
from flexfl.parameters import Rule as NumberRule
from flexfl.streams import Moment

Participation = Annotated[
    Any,
    NumberRule(
        "must be in (0, 1]",
        share,
        "C, the share of clients that take part in an iteration; 1 for all that their budgets allow",
        per_client=True,
        example="participation = 0.05",
    ),
]


class SampledSend(Rule):
    """Sends k = round(k_r·d) components in iterations in which the client computes.

    Who computes is drawn once for both (`control.knobs`). A link so dear that p·φ(k) exceeds the budget
    is used with probability φ̃ / (p·φ(k)) only; what is not sent stays in the residual until the client
    takes part again.
    """

    def __init__(self, prob: FloatArray, budget: Number, ratio: Number) -> None:
        self.prob, self.budget, self.ratio = prob, budget, ratio

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        computes = replace(moment, role="compute").uniform("bernoulli") < self.prob
        amounts = choices.at_most(np.where(computes, components_of(self.ratio, moment.dim), 0))
        expected = self.prob * price_of(cost, choices, amounts)
        return np.where(moment.uniform("send") < chance(self.budget, expected), amounts, 0)


@dataclass(frozen=True)
class Sampled:
    """In each iteration a client takes part with probability p: it computes, and sends what it has.

    FedAvg's sampling (McMahan et al., 2017): p is `participation`, FedAvg's C, or λ̃ / E[α] if the computing
    budget allows no more; a client's step is divided by p, which keeps the sum over clients unbiased. The
    uplink budget is kept on average, by iterations in which who takes part does not send: choose a
    `participation` for which they are few. The server sends with probability min{1, ψ̃ / ψ(k)}.

    Deviation: p does not follow the cost of sending. Over a fading channel its mean is infinite, and a
    step divided by a p that follows the channel has an infinite variance. Where E[α] is not known, p is
    `participation` alone.
    """

    participation: Participation = 1.0
    send_ratio: Ratio = 1.0
    decides: ClassVar[tuple[str, ...]] = KNOBS
    keeps_budgets: ClassVar[bool] = True

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return FixedCompute(self._prob(scope))

    def send_rule(self, scope: Scope) -> SendRule:
        ratio = scope.pick(self.send_ratio)
        if scope.knob == "downlink":
            return RandomisedSend(scope.limits, ratio)
        return SampledSend(self._prob(scope.computing or scope), scope.limits, ratio)

    def _prob(self, scope: Scope) -> FloatArray:
        """Return p, (...), for the scope of computing."""
        most = np.broadcast_to(scope.entities.pick(self.participation), scope.entities.shape)
        if scope.knob != "compute" or scope.budget is None or scope.mean_cost is None:
            return np.asarray(most, dtype=np.float64)
        return np.asarray(np.minimum(most, chance(scope.limits, scope.entities.pick(scope.mean_cost))))
