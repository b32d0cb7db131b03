"""Save up the budget, and send a fixed amount as soon as it is paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flexfl.arrays import BoolArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control.affordable import Savings, compute_on_average, pays, price_of
from flexfl.control.baselines import Ratio, components_of
from flexfl.control.policy import ComputeRule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.parameters import KNOBS
from flexfl.streams import Moment


class PacedSend(Savings):
    """Sends k = round(k_r·d) components when what was saved pays for them, else nothing.

    The dearer the channel, the longer it takes until a message is paid for.
    """

    def __init__(self, income: Number, ratio: Number) -> None:
        super().__init__(np.asarray(income))
        self.ratio = ratio

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        possible = pays(
            cost(choices.sizes_of(np.ones(moment.shape, dtype=np.int64))), self.available
        )  # others need not be looked at
        amounts = self.wanted(cost, choices, moment, possible)
        return np.where(pays(price_of(cost, choices, amounts), self.available), amounts, 0)

    def wanted(self, cost: Cost, choices: Choices, moment: Moment, possible: BoolArray) -> IntArray:
        """Return the amounts to send once they are paid for; 0 where that is not possible yet."""
        return choices.at_most(np.where(possible, components_of(self.ratio, moment.dim), 0))


@dataclass(frozen=True)
class Paced:
    """Save up and send k_r·d components as soon as the saved budget pays for them; never over budget.

    Clients compute with the probability that spends their budget on average.
    """

    send_ratio: Ratio = 1.0
    decides: ClassVar[tuple[str, ...]] = KNOBS
    keeps_budgets: ClassVar[bool] = True

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return compute_on_average(scope)

    def send_rule(self, scope: Scope) -> SendRule:
        return PacedSend(scope.limits, scope.pick(self.send_ratio))
