"""Budgets over several decisions: of more than one knob, of clients together, of clients and the server.

The paper's constraints are separate for each entity and knob; Section IV-C extends them to coupled ones "by
sharing queue length information". A joint budget j has queues of its own, and a decision with cost φ_j in
its resource adds Q_j·φ_j to the objectives of P3.1–P3.3:

    P3.2 becomes  min V·‖b − v‖² + Φ·φ(k) + Σ_j Q_j·φ_j(k)

A queue is charged the sum over all decisions of an iteration: Q' = max(floor, Q + Σ φ_j − φ̃_j).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import Count, FloatArray, IntArray, Number
from flexfl.control.queues import RemoteQueue, VirtualQueue
from flexfl.costs.base import Cost, CostModel
from flexfl.costs.linear import Affine, Linear
from flexfl.errors import CostError
from flexfl.state import State
from flexfl.streams import Entities, Moment


@dataclass(frozen=True, eq=False)
class JointBudget:
    """What several decisions may cost together on average.

    Attributes:
        limits: one for each of its queues, (Q,); ∞ is no limit.
        costs: by knob, what a decision on it costs in this resource: a model, or so many times the knob's
            own cost.
        members: the queue of each client, (N,); −1 for none.
        server: the queue of the server; −1 for none.
    """

    limits: FloatArray
    costs: Mapping[str, CostModel | float]
    members: IntArray
    server: int = -1

    def queue_of(self, who: Entities) -> IntArray:
        """Return the queue of each entity, −1 for none."""
        return np.asarray(self.server) if who.server else np.asarray(self.members[who.numbers])

    @property
    def is_local(self) -> bool:
        """Whether each queue belongs to one client, which can keep it on its own."""
        counts = np.bincount(self.members[self.members >= 0], minlength=1)
        return self.server < 0 and int(counts.max()) <= 1

    def of_client(self, client: int) -> JointBudget:
        """Return the same with the queue of one client alone."""
        alone = np.where(np.arange(len(self.members)) == client, 0, -1)
        queue = int(self.members[client])
        kept = np.full(0, np.inf) if queue < 0 else self.limits[[queue]]
        return replace(self, limits=kept, members=alone if queue >= 0 else np.full_like(alone, -1), server=-1)


MakeQueue = Callable[[JointBudget], VirtualQueue]


class JointQueues:
    """The queues of all joint budgets: knobs charge them, and `close` ends an iteration.

    Args:
        budgets: by name.
        make: returns the queues of a budget, which the policy has chosen.

    Attributes:
        totals: what each queue was charged since the beginning, by name, (Q,).
    """

    def __init__(self, budgets: Mapping[str, JointBudget], make: MakeQueue) -> None:
        self.budgets = dict(budgets)
        self.queues = {name: make(budget) for name, budget in self.budgets.items()}
        self._charged = self._zeros()
        self.totals = self._zeros()

    def _zeros(self) -> dict[str, FloatArray]:
        return {name: np.zeros(len(budget.limits)) for name, budget in self.budgets.items()}

    def view(self, role: str, who: Entities) -> JointView | None:
        """Return what the decisions of these entities on a knob are charged to; None for nothing."""
        named = [
            name
            for name, budget in self.budgets.items()
            if role in budget.costs and np.any(budget.queue_of(who) >= 0)
        ]
        return JointView(self, named, role, who) if named else None

    def charge(self, name: str, queue: IntArray, cost: Number) -> None:
        """Add what each entity was charged, to the queue of each; −1 is nobody's."""
        place, costs = np.broadcast_arrays(np.asarray(queue), np.asarray(cost, dtype=float))
        mine = place >= 0
        np.add.at(self._charged[name], place[mine], costs[mine])

    @property
    def charged(self) -> dict[str, FloatArray]:
        """What each queue was charged in this iteration so far, by name, (Q,)."""
        return {name: charged.copy() for name, charged in self._charged.items()}

    def close(self) -> None:
        """End the iteration."""
        for name, charged in self._charged.items():
            self.queues[name].charge(charged)
            self.totals[name] = self.totals[name] + charged
        self._charged = self._zeros()

    def unseen(self, *knobs: Any) -> list[str]:
        """Return the budgets that no rule of these knobs looks at."""
        views = [getattr(knob.rule, "joint", None) for knob in knobs]
        seen = {name for view in views if view is not None for name in view.names}
        return [name for name in self.budgets if name not in seen]

    def averages(self, iterations: int) -> dict[str, dict[str, Any]]:
        """Return what each budget was charged in an iteration, on average: over its queues, and the worst."""
        return {
            name: _average(self.budgets[name], total / max(1, iterations))
            for name, total in self.totals.items()
        }

    def state(self) -> State:
        lengths = {f"{name}.length": queue.length for name, queue in self.queues.items()}
        return lengths | {f"{name}.total": total for name, total in self.totals.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name, queue in self.queues.items():
            queue.restore({"length": state[f"{name}.length"]})
            self.totals[name] = np.array(state[f"{name}.total"], dtype=float).reshape(queue.budget.shape)
        self._charged = self._zeros()


class JointView:
    """The joint budgets that the decisions of some entities on one knob are charged to."""

    def __init__(self, queues: JointQueues, names: Sequence[str], role: str, who: Entities) -> None:
        self._queues, self.names, self._shape = queues, tuple(names), who.shape
        self._moment: Moment
        budgets = {name: queues.budgets[name] for name in names}
        self._place = {name: budget.queue_of(who) for name, budget in budgets.items()}
        costs = {name: budget.costs[role] for name, budget in budgets.items()}
        self._factors = {name: cost for name, cost in costs.items() if isinstance(cost, int | float)}
        self.models: dict[str, Any] = {
            # Copies: models may have a memory, and each knob has its own.
            name: copy.deepcopy(cost)
            for name, cost in costs.items()
            if not isinstance(cost, int | float)
        }

    def length(self, name: str) -> FloatArray:
        """Return the length that each entity decides against; 0 for those without a queue or limit."""
        place, queue = self._place[name], self._queues.queues[name]
        return np.asarray(np.append(queue.priced, 0.0)[place])  # the last one for −1

    @property
    def price(self) -> FloatArray:
        """The sum of the queues that are charged multiples of the knob's own cost, weighted by these."""
        total: FloatArray = np.zeros(())
        for name, factor in self._factors.items():
            total = total + factor * self.length(name)
        return total

    def at(self, moment: Moment) -> dict[str, Cost]:
        """Return this iteration's costs of the resources that have their own."""
        self._moment = moment
        return {name: model.at(moment) for name, model in self.models.items()}

    def joined(self, cost: Cost, others: Mapping[str, Cost]) -> Cost:
        """Return the knob's cost, for a rule that looks at others beside it."""
        if not others:
            return cost
        return JointCost(cost, tuple((self.length(name), other) for name, other in others.items()))

    def charge(self, knob_cost: Number, amount: Any, others: Mapping[str, Cost]) -> None:
        """Charge decisions: the knob's own cost, what was decided, and the costs that `at` returned."""
        for name, factor in self._factors.items():
            self._queues.charge(name, self._place[name], factor * np.asarray(knob_cost))
        for name, cost in others.items():
            with np.errstate(invalid="ignore"):  # ∞·0 of those who are away
                charged = np.broadcast_to(cost(amount), self._shape)
            charged = np.where((np.asarray(amount) == 0) & ~np.isfinite(charged), 0.0, charged)
            wrong = ~((charged >= 0) & np.isfinite(charged))
            if wrong.any():
                place = int(np.flatnonzero(wrong)[0])
                field, who = f"budget.{name}.{self._moment.role}", self._moment.entities.name(place)
                raise CostError(field, who, float(charged.flat[place]), self._moment.iteration)
            self._queues.charge(name, self._place[name], charged)


@dataclass(frozen=True, eq=False)
class JointCost:
    """A knob's own cost φ, and those of other resources with the queues they are priced by.

    Called, it is φ. `total(Φ)` is Φ·φ + Σ_j Q_j·φ_j.
    """

    knob_cost: Cost
    others: tuple[tuple[FloatArray, Cost], ...]

    def __call__(self, amount: Number | Count) -> FloatArray:
        return self.knob_cost(amount)

    def total(self, Phi: Number) -> Cost:
        terms = [(np.asarray(Phi, dtype=float), self.knob_cost), *self.others]
        if all(isinstance(cost, Linear) for _, cost in terms):
            return Linear(_sum(_times(Q, cost.per_gradient) for Q, cost in terms))  # type: ignore[attr-defined]
        if all(isinstance(cost, Affine) for _, cost in terms):
            return Affine(
                _sum(_times(Q, cost.per_message) for Q, cost in terms),  # type: ignore[attr-defined]
                _sum(_times(Q, cost.per_component) for Q, cost in terms),  # type: ignore[attr-defined]
            )
        return _Sum(tuple(terms))


@dataclass(frozen=True, eq=False)
class _Sum:
    """Σ Q·φ, of costs of any kind."""

    terms: tuple[tuple[FloatArray, Cost], ...]

    @property
    def monotone(self) -> bool:
        return all(getattr(cost, "monotone", False) for _, cost in self.terms)

    @property
    def breakpoints(self) -> FloatArray:
        found = [np.ravel(getattr(cost, "breakpoints", ())) for _, cost in self.terms]
        return np.concatenate(found)

    def __call__(self, amount: Number | Count) -> FloatArray:
        return _sum(_times(Q, cost(amount)) for Q, cost in self.terms)


def _times(Q: FloatArray, cost: Number) -> FloatArray:
    """Return Q·φ; what costs infinitely much is not to be had, however empty the queue."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isposinf(cost), np.inf, Q * np.asarray(cost))


def _sum(terms: Any) -> FloatArray:
    return np.asarray(sum(terms, start=np.zeros(())))


def _average(budget: JointBudget, charged: FloatArray) -> dict[str, Any]:
    worst = int(np.argmax(charged / budget.limits))
    clients = np.flatnonzero(budget.members == worst)
    who = [f"client {clients[0]}" if len(clients) == 1 else f"{len(clients)} clients"] if len(clients) else []
    who += ["the server"] if budget.server == worst else []
    return {
        "charged": float(charged.mean()),
        "budget": float(budget.limits.mean()),
        "worst": {
            "who": " and ".join(who),
            "charged": float(charged[worst]),
            "budget": float(budget.limits[worst]),
        },
    }


def remote_queue(budget: JointBudget) -> VirtualQueue:
    """Return queues of a budget whose lengths come from the server."""
    return RemoteQueue(budget.limits)
