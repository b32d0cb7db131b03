"""Algorithm 2: minimise P3.1–P3.3 in each iteration against the virtual queues.

Legend: V trade-off · Λ, Φ queue lengths (Φ stands for Ψ too) · α per gradient · β per message ·
γ per component · b the accumulated vector (the server's a).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control import search
from flexfl.control.allowance import Allowance
from flexfl.control.baselines import FixedCompute, SendAll
from flexfl.control.joint import JointBudget, JointView
from flexfl.control.joint_cost import JointCost
from flexfl.control.policy import ComputeRule, Rule, Scope, SendRule
from flexfl.control.queues import VirtualQueue
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine, Linear
from flexfl.parameters import Rule as NumberRule
from flexfl.parameters import above_zero, from_zero
from flexfl.state import State
from flexfl.streams import Moment

FLOORS = {"compute": 0.0, "uplink": 0.001, "downlink": 0.001}

_V = NumberRule(
    "must be > 0",
    above_zero,
    "V weighs convergence against cost; the paper has 0.02",
    per_client=True,
    by_knob=True,
)
_W = NumberRule(
    "must be ≥ 0",
    from_zero,
    "W = 0 starts with empty queues; the paper has 1",
    per_client=True,
    by_knob=True,
)
_FLOOR = NumberRule(
    "must be ≥ 0",
    from_zero,
    "the shortest queue; 0, or a little such as 0.001",
    per_client=True,
    by_knob=True,
)
LEAST = NumberRule(
    "must be in [0, 1]",
    lambda number: 0 <= number <= 1,
    "the least q; 0 for no bound",
    per_client=True,
)


def compute_prob(V: Number, Lam: Number, alpha: Number) -> FloatArray:
    """Return the q that minimises P3.1 with λ = α·q: q = min{1, √(V / (Λ·α))}.

    An empty queue or a free iteration (Λ·α = 0) gives q = 1.

    >>> compute_prob(V=0.02, Lam=1.0, alpha=0.5)
    array(0.2)
    """
    return np.asarray(np.sqrt(V / np.maximum(np.asarray(Lam) * alpha, V)))


def threshold(V: Number, Phi: Number, gamma: Number) -> FloatArray:
    """Return √(Φ·γ / V): a component is worth its cost if its magnitude is above this."""
    return np.asarray(np.sqrt(np.asarray(Phi, dtype=np.float64) * gamma / V))


def num_sent(V: Number, Phi: Number, beta: Number, gamma: Number, choices: Choices) -> IntArray:
    """Return how many of the largest components minimise P3.2 and P3.3 with φ = β + γ·k for k > 0.

    One more component changes the objective by Φ·γ − V·b_j², so the best non-empty set is
    k = #{j : V·b_j² > Φ·γ}, a threshold and not a sort. It is sent if that beats sending nothing:
    V·Σ b_j² > Φ·(β + γ·k), the sum over the set; in other words, if the excess Σ (b_j² − Φ·γ/V) over the
    set is above Φ·β/V. For a compressor that rounds, what a component gains stands where b_j² stands.

    Deviation: the paper sends j* components, where j* is the first that does *not* help (Φ·γ − V·b_j² ≥ 0).
    The exact minimiser sends k = j* − 1; brute force over every k in the tests settles it.
    """
    Phi = np.asarray(Phi, dtype=np.float64)
    k, energy = choices.above(threshold(V, Phi, gamma), enough=Phi * beta / V)
    worth_it = V * energy > Phi * (beta + gamma * k)
    return np.where(worth_it, k, 0)


class _Queued(Rule):
    """A rule with a virtual queue."""

    def __init__(self, queue: VirtualQueue, tradeoff: Number, joint: JointView | None = None) -> None:
        self.queue, self.tradeoff, self.joint = queue, tradeoff, joint

    @property
    def pressure(self) -> FloatArray:
        return self.queue.pressure if self.joint is None else self._price

    @property
    def _price(self) -> FloatArray:
        """Φ: the queue, and those of joint budgets that are charged the same cost; 0 without a limit."""
        return self.queue.priced if self.joint is None else self.queue.priced + self.joint.price

    def _priced(self, cost: Cost) -> tuple[Number, Cost]:
        """Return Φ and φ; 1 and Φ·φ + Σ_j Q_j·φ_j where joint budgets have costs of their own."""
        Phi = self._price
        return (np.ones_like(Phi), cost.total(Phi)) if isinstance(cost, JointCost) else (Phi, cost)

    def charge(self, spent: FloatArray) -> None:
        self.queue.charge(spent)  # (16)–(18)

    def state(self) -> State:
        return self.queue.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.queue.restore(state)


class OnlineCompute(_Queued):
    """Solves P3.1 in each iteration, for q from `least` on; entities without a budget always compute."""

    def __init__(
        self, queue: VirtualQueue, tradeoff: Number, joint: JointView | None = None, least: Number = 0.0
    ) -> None:
        super().__init__(queue, tradeoff, joint)
        self.least = np.asarray(least, dtype=np.float64)

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        V, (Lam, cost) = self.tradeoff, self._priced(cost)
        if isinstance(cost, Linear):  # convex: the best q from the bound on is the best q, or the bound
            return np.maximum(compute_prob(V, Lam, cost.per_gradient), self.least)
        free = self.queue.unlimited if self.joint is None else False
        return np.where(free, 1.0, search.compute_prob(V, Lam, cost, self.least))


class OnlineSend(_Queued):
    """Solves P3.2 (or P3.3) in each iteration; entities without a budget send everything."""

    def cut(self, cost: Cost) -> FloatArray:
        Phi, cost = self._priced(cost)
        if isinstance(cost, Affine):
            return threshold(self.tradeoff, Phi, cost.per_component)
        return np.zeros(())

    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray:
        V, (Phi, cost) = self.tradeoff, self._priced(cost)
        if isinstance(cost, Affine) and choices.largest_first and choices.counts == "components":
            return num_sent(V, Phi, cost.per_message, cost.per_component, choices)
        return search.amounts(V, Phi, cost, choices)


@dataclass(frozen=True)
class Online:
    """The paper's policy. A knob without a budget is left uncontrolled: computes always, sends everything.

    `tradeoff` is V, `initial_queue` W, `floor` the shortest queue: one for all, or a table by knob, each
    a number or one for each client. `min_prob` is the least q, which bounds 1/q (Assumption 2) and with it
    the largest step; a client whose budget does not allow for it exceeds the budget.
    """

    tradeoff: Annotated[Any, _V] = 0.02
    initial_queue: Annotated[Any, _W] = 1.0
    floor: Annotated[Any, _FLOOR] = field(default_factory=lambda: dict(FLOORS))
    min_prob: Annotated[Any, LEAST] = 0.0

    def compute_rule(self, scope: Scope) -> ComputeRule:
        if scope.budget is None and scope.joint is None:
            return FixedCompute()
        return OnlineCompute(*self._queue(scope), scope.joint, scope.pick(self.min_prob))

    def send_rule(self, scope: Scope) -> SendRule:
        if scope.budget is None and scope.joint is None:
            return SendAll()
        queue, V = self._queue(scope)
        # Weights are part of F_n: where b stands in P3.2, it is N·w_n·b. P2.1 counts 1/q for all alike.
        return OnlineSend(queue, V * np.square(scope.importance), scope.joint)

    def joint_queue(self, budget: JointBudget, allowance: Allowance) -> VirtualQueue:
        """Return the queues of a joint budget, with the largest W and floor of its knobs.

        A budget that sends are charged to needs their floor: at 0 they would be free.
        """
        W, floor = (
            max(
                float(np.max(value.get(knob, default[knob]) if isinstance(value, Mapping) else value))
                for knob in budget.costs
            )
            for value, default in ((self.initial_queue, dict.fromkeys(FLOORS, 1.0)), (self.floor, FLOORS))
        )
        return VirtualQueue(allowance.nominal, initial=W, floor=floor)

    def _queue(self, scope: Scope) -> tuple[VirtualQueue, Number]:
        queue = scope.queue(scope.pick(self.initial_queue, 1.0), scope.pick(self.floor, FLOORS))
        return queue, scope.pick(self.tradeoff, 0.02)
