"""Budgets over several decisions: of more than one knob, of clients together, of clients and the server.

The paper's constraints are separate for each entity and knob; Section IV-C extends them to coupled ones "by
sharing queue length information". A joint budget j has queues of its own, and a decision with cost φ_j in
its resource adds Q_j·φ_j to the objectives of P3.1–P3.3:

    P3.2 becomes  min V·‖b − v‖² + Φ·φ(k) + Σ_j Q_j·φ_j(k)

A queue is charged the sum over all decisions of an iteration: Q' = max(floor, Q + Σ φ_j − φ̃_j).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number
from flexfl.control.allowance import Allowance
from flexfl.control.budget import JointBudget as JointBudget
from flexfl.control.joint_cost import JointCost, scaled
from flexfl.control.queues import VirtualQueue
from flexfl.costs.base import Cost
from flexfl.errors import CostError
from flexfl.learning_rate import Factor
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities, Moment
from flexfl.units import period_of

if TYPE_CHECKING:
    from flexfl.control.price import LogPrice

MakeQueue = Callable[[str, Allowance], "VirtualQueue | LogPrice"]


class JointQueues:
    """The queues of all joint budgets: knobs charge them, and `close` ends an iteration.

    Args:
        budgets: by name.
        allowances: of these, by name.
        make: returns the queues of a budget, which the policy has chosen.

    Attributes:
        totals: what each queue was charged since the beginning, by name, (Q,).
    """

    def __init__(
        self, budgets: Mapping[str, JointBudget], allowances: Mapping[str, Allowance], make: MakeQueue
    ) -> None:
        self.budgets, self.allowances = dict(budgets), dict(allowances)
        self.queues = {name: make(name, self.allowances[name]) for name in self.budgets}
        self._charged, self._spent = self._zeros(), self._zeros()
        self.totals = self._zeros()
        self._opened = -1

    def _zeros(self) -> dict[str, FloatArray]:
        return {name: np.zeros(len(budget.limits)) for name, budget in self.budgets.items()}

    def view(self, role: str, who: Entities, factor: Factor = lambda t: 1.0) -> JointView | None:
        """Return what the decisions of these entities on a knob are charged to; None for nothing.

        `factor` is that of the learning rate, by iteration.
        """
        named = [
            name
            for name, budget in self.budgets.items()
            if role in budget.costs and np.any(budget.queue_of(who) >= 0)
        ]
        return JointView(self, named, role, who, factor) if named else None

    def open(self, iteration: int, seconds: float) -> None:
        """Begin an iteration; what was opened already stays as it is."""
        if iteration != self._opened:
            self._opened = iteration
            for allowance in self.allowances.values():
                allowance.open(iteration, seconds)

    def charge(self, name: str, queue: IntArray, cost: Number) -> None:
        """Add what each entity was charged, to the queue of each; −1 is nobody's."""
        _add(self._charged[name], queue, cost)

    def spend(self, name: str, queue: IntArray, cost: Number) -> None:
        """Add what each entity has really spent."""
        _add(self._spent[name], queue, cost)

    @property
    def charged(self) -> dict[str, FloatArray]:
        """What each queue was charged in this iteration so far, by name, (Q,)."""
        return {name: charged.copy() for name, charged in self._charged.items()}

    @property
    def spent(self) -> dict[str, FloatArray]:
        """What was really spent in this iteration so far, by name, (Q,)."""
        return {name: spent.copy() for name, spent in self._spent.items()}

    def close(self) -> None:
        """End the iteration."""
        for name, charged in self._charged.items():
            self.queues[name].charge(charged)
            self.allowances[name].spend(self._spent[name])
            self.totals[name] = self.totals[name] + charged
        self._charged, self._spent = self._zeros(), self._zeros()

    def unseen(self, *knobs: Any) -> list[str]:
        """Return the budgets that no rule of these knobs looks at."""
        views = [getattr(knob.rule, "joint", None) for knob in knobs]
        seen = {name for view in views if view is not None for name in view.names}
        return [name for name in self.budgets if name not in seen]

    def averages(self, iterations: int) -> dict[str, dict[str, Any]]:
        """Return what each budget was charged in an iteration, on average: over its queues, and the worst."""
        return {
            name: _average(self.budgets[name], self.allowances[name].nominal, total / max(1, iterations))
            for name, total in self.totals.items()
        }

    def state(self) -> State:
        return state_of(**self._memories) | {f"{name}.total": total for name, total in self.totals.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, **self._memories)
        for name, budget in self.budgets.items():
            self.totals[name] = np.array(state[f"{name}.total"], dtype=float).reshape(budget.limits.shape)
        self._charged, self._spent, self._opened = self._zeros(), self._zeros(), -1

    @property
    def _memories(self) -> dict[str, object]:
        queues: dict[str, object] = {f"{name}.queue": part for name, part in self.queues.items()}
        return queues | {f"{name}.allowance": part for name, part in self.allowances.items()}


class JointView:
    """The joint budgets that the decisions of some entities on one knob are charged to."""

    def __init__(
        self,
        queues: JointQueues,
        names: Sequence[str],
        role: str,
        who: Entities,
        factor: Factor = lambda t: 1.0,
    ) -> None:
        self._queues, self.names, self._shape = queues, tuple(names), who.shape
        self._moment: Moment
        self._factor, self._squared = factor, 1.0  # f_t of the learning rate, and f_t² now
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
        relative = {name for name in names if getattr(queues.queues[name], "relative", False)}
        self._scales = {name: np.full(who.shape, np.nan if name in relative else 1.0) for name in names}
        self._by_rate = relative if role != "compute" else set[str]()  # prices of ‖b − v‖²

    @property
    def hard(self) -> bool:
        """Whether one of the budgets may never be exceeded."""
        return any(self._queues.allowances[name].hard for name in self.names)

    @property
    def untimed(self) -> BoolArray:
        """Which entities have a budget that goes by the clock, and no iteration was timed yet."""
        found = np.zeros(self._shape, dtype=bool)
        for name in self.names:
            own = self._queues.allowances[name]
            untimed = np.isfinite(own.limits) & np.isnan(own.nominal)
            found = found | (self._of_place(name, untimed.astype(float)) > 0)
        return found

    def length(self, name: str) -> FloatArray:
        """Return the length that each entity decides against; 0 for those without a queue or limit."""
        scale = np.where(np.isnan(self._scales[name]), 0.0, self._scales[name])
        return self._of_place(name, self._queues.queues[name].priced) * scale * self._rate_of(name)

    def _rate_of(self, name: str) -> float:
        """Return f_t² for prices of sending under a schedule (`control.log_price`), else 1."""
        return self._squared if name in self._by_rate else 1.0

    def _of_place(self, name: str, values: FloatArray, nobody: float = 0.0) -> FloatArray:
        """Return the number of each entity's queue, (Q,) given; `nobody` for those without one."""
        return np.asarray(np.append(values, nobody)[self._place[name]])  # the last one for −1

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
        self._squared = self._factor(moment.iteration) ** 2
        self._queues.open(moment.iteration, moment.seconds)
        return {name: model.at(moment) for name, model in self.models.items()}

    def joined(self, cost: Cost, others: Mapping[str, Cost]) -> Cost:
        """Return the knob's cost, for a rule that looks at others beside it."""
        if not others:
            return cost
        return JointCost(cost, tuple((self.length(name), other) for name, other in others.items()))

    def charge(self, knob_cost: Number, amount: Any, others: Mapping[str, Cost]) -> None:
        """Charge decisions: the knob's own cost, what was decided, and the costs that `at` returned."""
        for name, charged in self._costs(knob_cost, amount, others):
            self._queues.charge(name, self._place[name], charged)

    def spend(self, knob_cost: Number, amount: Any, others: Mapping[str, Cost]) -> None:
        """Take note of what was really spent, in the same way."""
        for name, spent in self._costs(knob_cost, amount, others):
            self._queues.spend(name, self._place[name], spent)

    def _costs(
        self, knob_cost: Number, amount: Any, others: Mapping[str, Cost]
    ) -> Iterator[tuple[str, FloatArray]]:
        """Yield what decisions cost in each resource, checked."""
        for name, factor in self._factors.items():
            yield name, factor * np.asarray(knob_cost)
        for name, cost in others.items():
            charged = self._in_resource(cost, amount)
            wrong = ~((charged >= 0) & np.isfinite(charged))
            if wrong.any():
                place = int(np.flatnonzero(wrong)[0])
                field, who = f"budget.{name}.{self._moment.role}", self._moment.entities.name(place)
                raise CostError(field, who, float(charged.flat[place]), self._moment.iteration)
            yield name, charged

    def _in_resource(self, cost: Cost, amount: Any) -> FloatArray:
        with np.errstate(invalid="ignore"):  # ∞·0 of those who are away
            charged = np.asarray(cost(amount))
        shape = np.broadcast_shapes(charged.shape, np.shape(amount), self._shape)
        return np.where(
            (np.asarray(amount) == 0) & ~np.isfinite(charged), 0.0, np.broadcast_to(charged, shape)
        )

    def bills(
        self, knob_cost: Number, amount: Any, others: Mapping[str, Cost]
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what amounts (..., N) would cost in each hard budget, and what each entity may spend."""
        for name in self.names:
            allowance = self._queues.allowances[name]
            if allowance.hard:
                spent = (
                    self._factors[name] * np.asarray(knob_cost)
                    if name in self._factors
                    else self._in_resource(others[name], amount)
                )
                yield spent, self._of_place(name, allowance.left_each, np.inf)

    # Prices that begin with the first decision (`control.price.JointPrice`) ---------------------------

    def begin(self, cost: Cost, first: Callable[[Cost, BoolArray, FloatArray], FloatArray]) -> None:
        """Set what a joint price is a factor of, of entities that weigh something for the first time.

        Args:
            cost: the knob's own, or a `JointCost`.
            first: returns the first price, given a cost, who is waiting, and the budget of each; or NaN.
        """
        for name, scale in self._scales.items():
            allowance = self._queues.allowances[name]
            budget = self._of_place(name, allowance.nominal / allowance.sharing, np.inf)
            waiting = np.isnan(scale) & np.isfinite(budget)
            if waiting.any():
                begun = first(self._resource(name, cost), waiting, budget) / self._rate_of(name)
                known = waiting & (begun > 0) & np.isfinite(begun)  # else it waits: free now, or away
                self._scales[name] = np.where(known, begun, scale)

    def _resource(self, name: str, cost: Cost) -> Cost:
        """Return the cost of a decision in a resource."""
        if isinstance(cost, JointCost):
            own, others = (
                cost.knob_cost,
                dict(zip(self.models, (other for _, other in cost.others), strict=True)),
            )
        else:
            own, others = cost, {}
        return others[name] if name in others else scaled(own, self._factors[name])

    def state(self) -> State:
        return {f"scale.{name}": scale for name, scale in self._scales.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name, scale in self._scales.items():
            self._scales[name] = np.array(state[f"scale.{name}"], dtype=float).reshape(scale.shape)


def _add(totals: FloatArray, queue: IntArray, cost: Number) -> None:
    """Add what each entity costs to its queue's total; −1 is nobody's."""
    place, costs = np.broadcast_arrays(np.asarray(queue), np.asarray(cost, dtype=float))
    mine = place >= 0
    np.add.at(totals, place[mine], costs[mine])


def _average(budget: JointBudget, limits: FloatArray, charged: FloatArray) -> dict[str, Any]:
    """Return averages for an iteration; the unit, and what the budget is for if not for an iteration."""
    worst = int(np.argmax(charged / limits))
    clients = np.flatnonzero(budget.members == worst)
    who = [f"client {clients[0]}" if len(clients) == 1 else f"{len(clients)} clients"] if len(clients) else []
    who += ["the server"] if budget.server == worst else []
    found = {
        "charged": float(charged.mean()),
        "budget": float(limits.mean()),
        "worst": {
            "who": " and ".join(who),
            "charged": float(charged[worst]),
            "budget": float(limits[worst]),
        },
    }
    per = period_of(budget.seconds) if budget.per == "time" else budget.per
    unit = {"unit": budget.unit} if budget.unit else {}
    return found | unit | ({} if per == "iteration" else {"per": per, "limit": float(budget.limits.mean())})
