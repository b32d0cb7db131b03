"""What a policy is: for each knob, a rule that decides in every iteration.

The knobs are `compute` (q, with which probability a client computes), `uplink` (what a client sends) and
`downlink` (what the server sends). A rule decides for all its entities at once, (N,) in a simulation or ()
for one deployed client or the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.compress.base import Choices
from flexfl.control.allowance import Allowance
from flexfl.control.budget import Budget as Budget
from flexfl.control.queues import RemoteQueue, VirtualQueue
from flexfl.costs.base import Cost
from flexfl.learning_rate import Factor
from flexfl.streams import Entities, Moment

if TYPE_CHECKING:
    from flexfl.control.joint import JointBudget, JointView
    from flexfl.control.price import LogPrice


class Rule:
    """What rules that remember nothing have in common; a rule with a memory overrides it.

    A rule with a memory has `state()` and `restore(state)` besides (`flexfl.state`).
    """

    @property
    def pressure(self) -> FloatArray:
        """What decisions were made against, for the record: the length of a queue, a price; or NaN."""
        return np.asarray(np.nan)

    def charge(self, spent: FloatArray) -> None:
        """Take note of what each entity was charged in this iteration."""

    def cut(self, cost: Cost) -> FloatArray:
        """Return the threshold on |b| that `decide` will ask `choices.above` about, as far as it is known.

        An engine measures against it while b is being made, and saves a pass.
        """
        return np.zeros(())


class ComputeRule(Protocol):
    """Decides q, the probability of computing in this iteration; subclass `Rule`."""

    @property
    def pressure(self) -> FloatArray: ...
    def charge(self, spent: FloatArray) -> None: ...
    def decide(self, cost: Cost, moment: Moment) -> FloatArray: ...


class SendRule(Protocol):
    """Decides amounts, how much is sent in this iteration (`flexfl.compress`); subclass `Rule`."""

    @property
    def pressure(self) -> FloatArray: ...
    def charge(self, spent: FloatArray) -> None: ...
    def cut(self, cost: Cost) -> FloatArray: ...
    def decide(self, cost: Cost, choices: Choices, moment: Moment) -> IntArray: ...


def importance(weights: FloatArray) -> FloatArray:
    """Return N·w, how much each client counts in f = Σ w·F; one 1 if all count the same.

    The paper's f is the plain mean, and weights are part of F_n: with N·w_n·F_n for F_n, the vectors that
    P3.2 looks at are N·w_n·b, and its objective is (N·w_n)²·‖b − v‖². A client without weight counts a
    thousandth, so that P3.2 still has a solution for it.

    >>> importance(np.array([0.5, 0.25, 0.25]))
    array([1.5 , 0.75, 0.75])
    """
    if np.all(weights == weights.flat[0]):
        return np.asarray(1.0)
    return np.maximum(len(weights) * weights, 1e-3)


@dataclass(frozen=True)
class Scope:
    """What a rule is made for.

    Attributes:
        knob: compute, uplink or downlink.
        entities: who decides.
        budget: what they may spend; None for no limit at all.
        iterations: T, how long the run is meant to be.
        mean_cost: the expected cost of one computation, where the cost model has it.
        joint: budgets over several decisions that these count for (`flexfl.control.joint`); None for none.
        remote: the queues that `queue` has made and the server keeps.
        allowance: the budget of these entities with its horizon; None without a budget.
        importance: N·w, how much each entity counts in f = Σ w·F (`importance`).
        factor: η_t/η, the learning rate by iteration relative to the one that was set.
        computing: of an uplink, the scope of computing by the same clients, for those who send when they
            compute; None otherwise.
    """

    knob: str
    entities: Entities
    budget: Budget | None = None
    iterations: int = 0
    mean_cost: Any = field(default=None, compare=False)
    importance: Any = field(default=1.0, compare=False)
    joint: JointView | None = field(default=None, compare=False)
    remote: list[RemoteQueue | LogPrice] = field(default_factory=list, compare=False, repr=False)
    allowance: Allowance | None = field(default=None, compare=False, repr=False)
    factor: Factor = field(default=lambda t: 1.0, compare=False, repr=False)
    computing: Scope | None = field(default=None, compare=False, repr=False)

    def pick(self, value: Any, default: Any = None) -> Any:
        """Return the entities' share of a setting: one for all, a list by client, or a table by knob."""
        if isinstance(value, Mapping):
            value = value.get(self.knob, default.get(self.knob) if isinstance(default, Mapping) else default)
        return self.entities.pick(value)

    @property
    def limits(self) -> FloatArray:
        """The budget of each entity for an iteration; a shared one is divided evenly among its members."""
        shape = self.entities.shape
        if self.budget is None:
            return np.full(shape, np.inf)
        members, average = self.budget.members, self.budget.average(self.iterations)
        if members is None:
            return np.broadcast_to(self.entities.pick(average), shape)
        return np.asarray((average / np.bincount(members))[self.entities.pick(members)])

    def queue(self, initial: Any = 0.0, floor: Any = 0.0) -> VirtualQueue:
        """Return queues for this budget, of the right shape.

        A single client that shares its budget decides against a length that the server sends.
        """
        if self.budget is None or self.budget.members is None:
            return VirtualQueue(self.limits, initial=initial, floor=floor)
        limits, members = self.budget.average(self.iterations), self.budget.members
        if self.entities.everyone:
            return VirtualQueue(limits, initial=initial, floor=floor, members=members)
        queue = int(self.entities.pick(members))
        if np.count_nonzero(members == queue) == 1:
            return VirtualQueue(limits[queue], initial=initial, floor=floor)
        remote = RemoteQueue(limits[queue], initial=initial, floor=floor)
        self.remote.append(remote)
        return remote


@runtime_checkable
class Policy(Protocol):
    """Makes the rule of each knob.

    Optional class attributes:

    - `decides`, the knobs that it has a rule of its own for; by default all;
    - `keeps_budgets`, False for one that does not look at budgets;
    - `keeps_totals`, True for one that plans for T: averages are then hard, as totals are;
    - `follows_clock`, True for one that can keep to budgets for a time, such as a month.
    """

    def compute_rule(self, scope: Scope) -> ComputeRule: ...
    def send_rule(self, scope: Scope) -> SendRule: ...


@dataclass(frozen=True)
class ByKnob:
    """Takes each knob's rule from a policy of its own."""

    policies: Mapping[str, Policy]

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return self.policies[scope.knob].compute_rule(scope)

    def send_rule(self, scope: Scope) -> SendRule:
        return self.policies[scope.knob].send_rule(scope)

    def joint_queue(self, budget: JointBudget, allowance: Allowance) -> VirtualQueue | LogPrice:
        """Return the queues of a joint budget as the first of its knobs' policies that has some chooses."""
        for knob in budget.costs:
            if (choose := getattr(self.policies[knob], "joint_queue", None)) is not None:
                chosen: VirtualQueue | LogPrice = choose(budget, allowance)
                return chosen
        return VirtualQueue(allowance.nominal)
