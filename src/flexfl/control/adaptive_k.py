"""A number of components that follows the channel: each message costs what was saved, as in Kimad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from flexfl.arrays import IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control.affordable import Savings, compute_on_average, largest_within
from flexfl.control.policy import ComputeRule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.parameters import KNOBS, Whole
from flexfl.streams import Moment


class AdaptiveSend(Savings):
    """In every m-th iteration, sends as much as what was saved pays for.

    A message costs about m·φ̃, whatever the channel: on a good one it carries more components. What a
    message leaves of the budget, since everything was sent or the link was down, is saved for the next.
    """

    def __init__(self, income: Number, every: int) -> None:
        super().__init__(np.asarray(income))
        self.every = every

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        if (moment.iteration + 1) % self.every:
            return np.zeros(moment.shape, dtype=np.int64)
        return largest_within(cost, choices, self.available, moment.dim)


@dataclass(frozen=True)
class AdaptiveK:
    """Every `send_every` iterations spend what was saved: k follows the channel; never over budget.

    After Kimad (Xin et al., 2023), which sets the compression ratio of each message by the bandwidth of the
    moment. Clients compute with the probability that spends their budget on average.
    """

    send_every: Annotated[int, Whole(1, "m: send in every m-th iteration")] = 10
    decides: ClassVar[tuple[str, ...]] = KNOBS
    keeps_budgets: ClassVar[bool] = True

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return compute_on_average(scope)

    def send_rule(self, scope: Scope) -> SendRule:
        return AdaptiveSend(scope.limits, self.send_every)
