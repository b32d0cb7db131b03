"""A policy of one's own: everyone saves up its budget and spends it when it has enough.

flexfl run quickstart --set control.policy=examples.own_policy:SavingUp
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.compress import Choices
from flexfl.control import Rule, Scope
from flexfl.costs import Cost
from flexfl.parameters import Share
from flexfl.state import State
from flexfl.streams import Moment


class Savings(Rule):
    def __init__(self, scope: Scope, least: float) -> None:
        self.income, self.least = np.minimum(scope.limits, 1e6), least
        self.saved = np.zeros(scope.entities.shape)

    def charge(self, spent: FloatArray) -> None:
        self.saved = self.saved + self.income - spent

    def state(self) -> State:
        return {"saved": self.saved}

    def restore(self, state: State) -> None:
        self.saved = np.asarray(state["saved"], dtype=float)


class ComputeWhenAffordable(Savings):
    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        return np.where(cost(np.ones(moment.shape)) <= self.saved + self.income, 1.0, 1e-3)


class SendWhenAffordable(Savings):
    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        amounts, few = np.zeros(moment.shape, dtype=np.int64), max(1, round(self.least * moment.dim))
        for more in (choices.at_most(few), choices.everything()):
            amounts = np.where(cost(choices.components(more)) <= self.saved + self.income, more, amounts)
        return amounts


@dataclass(frozen=True)
class SavingUp:
    """Makes the rules; `least` is the share of components that is sent if not everything."""

    least: Share = 0.01

    def compute_rule(self, scope: Scope) -> Rule:
        return ComputeWhenAffordable(scope, self.least)

    def send_rule(self, scope: Scope) -> Rule:
        return SendWhenAffordable(scope, self.least)
