"""What a knob and a sender share: draw this iteration's cost, ask the rule, charge, keep to what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number
from flexfl.clock import Clock, NoClock
from flexfl.compress.base import Choices
from flexfl.control.allowance import Allowance
from flexfl.control.joint import JointView
from flexfl.control.policy import ComputeRule, SendRule
from flexfl.control.queues import RemoteQueue
from flexfl.costs.base import Cost, CostModel, Measured
from flexfl.errors import CostError, DecisionError, Fault, InputError, rule_error
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities, Moment, Streams

if TYPE_CHECKING:
    from flexfl.control.price import LogPrice

_ROUNDING = 1e-12


def _exceeds(cost: FloatArray, left: FloatArray) -> BoolArray:
    """Return whether a cost is more than is left, apart from rounding."""
    return np.asarray(cost) > left * (1 + _ROUNDING)


class Vectors(Choices, Protocol):
    """The vectors b of a sender's entities: what the rule may ask, and what amounts come to."""

    def possible(self, amounts: IntArray) -> BoolArray: ...
    def nbytes(self, amounts: IntArray) -> IntArray: ...


@dataclass(frozen=True)
class Capped:
    """A cost that is infinite for what may not be had."""

    cost: Cost
    over: Callable[[Any], BoolArray]

    @property
    def monotone(self) -> bool:
        return bool(getattr(self.cost, "monotone", False))

    def __call__(self, amount: Number | Count) -> FloatArray:
        return np.where(self.over(amount), np.inf, self.cost(amount))


class Controlled:
    """What a knob and a sender share: a cost, a rule, a budget, and those who decide.

    A budget that is hard is kept here, whatever the rule: what would cost more than is left is not done.
    """

    def __init__(
        self,
        role: str,
        cost: CostModel,
        rule: ComputeRule | SendRule,
        entities: Entities,
        streams: Streams,
        dim: int,
        joint: JointView | None = None,
        allowance: Allowance | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._joint, self._others = joint, dict[str, Cost]()
        self.allowance, self._clock = allowance, clock or NoClock()
        self.remote: tuple[RemoteQueue | LogPrice, ...] = ()
        """Queues and prices of the rule that the server sends."""
        self.role, self.cost, self.rule, self.entities = role, cost, rule, entities
        self._streams, self._dim = streams, dim
        self._rule_name = type(rule).__name__
        self._measured = cost if isinstance(cost, Measured) else None
        shape = np.shape(rule.pressure)
        if np.isfinite(rule.pressure).all() and shape != entities.shape:
            field = f"control.policy ({self._rule_name})"
            must = f"must have a queue of shape {entities.shape}"
            remedy = f"make it with scope.queue(…), or give the budget of {role} that shape"
            raise InputError([Fault(field, must, shape, remedy)], "the policy")

    def _open(self, iteration: int) -> tuple[Moment, Cost]:
        """Return this iteration's moment and cost."""
        seconds = self._clock.seconds
        moment = self._streams.moment(self.role, iteration, self._dim, self.entities, seconds)
        if self._joint is not None:
            self._others = self._joint.at(moment)
        cost = self.cost.at(moment)
        if self.allowance is not None:
            self.allowance.open(iteration, seconds, getattr(cost, "idle", 0.0))
        return moment, cost

    @property
    def seconds(self) -> float:
        """Seconds since the run began, by its clock."""
        return self._clock.seconds

    @property
    def _hard(self) -> bool:
        own = self.allowance is not None and self.allowance.hard
        return own or (self._joint is not None and self._joint.hard)

    def _over(self, charged: FloatArray, amount: Any) -> BoolArray:
        """Return for whom an amount costs more than is left; `charged` is its own cost."""
        over = np.zeros(np.broadcast_shapes(np.shape(charged), self.entities.shape), dtype=bool)
        if self.allowance is not None and self.allowance.hard:
            over = over | _exceeds(charged, self.allowance.left_each)
        if self._joint is not None:
            for spent, left in self._joint.bills(charged, amount, self._others):
                over = over | _exceeds(spent, left)
        return over

    def _seen(self, cost: Cost) -> Cost:
        """Return the cost as the rule sees it: with those of joint budgets, if it looks at them."""
        if self._joint is None or getattr(self.rule, "joint", None) is None:
            return cost
        return self._joint.joined(cost, self._others)

    def _ask(self, moment: Moment, cost: Cost, *choices: Vectors) -> NDArray[Any]:
        """Return what the rule decides, one for each entity."""
        # A copy: a rule may go on to change its own array, and records keep this one.
        cost = self._seen(cost)
        try:
            decision = np.array(self.rule.decide(cost, *choices, moment))  # type: ignore[call-arg, arg-type]
        except Exception as error:
            raise rule_error(error, self._rule_name, "decide", self.role, moment.iteration) from error
        if decision.shape == moment.shape:
            return decision
        try:
            return np.broadcast_to(decision, moment.shape)
        except ValueError as error:
            must, value = f"something of shape {moment.shape}", f"shape {decision.shape}"
            raise DecisionError(self._rule_name, must, value, "all", moment.iteration) from error

    def _charge(self, charged: FloatArray, amount: Any) -> FloatArray:
        """Charge the rule and joint budgets; return what the decision was made against."""
        pressure, shape = np.array(self.rule.pressure), self.entities.shape
        if self._joint is not None:
            self._joint.charge(charged, amount, self._others)
        self.rule.charge(charged)
        return pressure if np.shape(pressure) == shape else np.broadcast_to(pressure, shape)

    def _spend(self, spent: FloatArray, amount: Any) -> None:
        """Take what was really spent off what is left."""
        if self.allowance is not None:
            self.allowance.spend(spent)
        if self._joint is not None:
            self._joint.spend(spent, amount, self._others)

    def _price(self, cost: Cost, amount: Any, moment: Moment) -> FloatArray:
        """Return what each entity's amount costs, checked."""
        return self._sound(np.asarray(cost(amount)), moment)

    def _sound(self, charged: FloatArray, moment: Moment) -> FloatArray:
        """Return costs, one for each entity, checked."""
        if charged.shape != moment.shape:
            charged = np.broadcast_to(charged, moment.shape)
        if charged.size and not (charged.min() >= 0 and charged.max() < np.inf):  # NaN is neither
            place = int(np.flatnonzero(~((charged >= 0) & np.isfinite(charged)))[0])
            raise CostError(
                f"costs.{self.role}", self.entities.name(place), float(charged.flat[place]), moment.iteration
            )
        return charged

    def _refuse(
        self, must: str, values: NDArray[Any], wrong: BoolArray, moment: Moment, cost: Cost
    ) -> DecisionError:
        """Return the error for a decision; a cost that is to blame for it is reported instead."""
        self._price(cost, np.ones(moment.shape), moment)
        place = int(np.flatnonzero(wrong)[0])
        who = self.entities.name(place)
        return DecisionError(self._rule_name, must, values.flat[place], who, moment.iteration)

    def skip(self, iterations: int) -> None:
        """Let iterations pass in which nothing was done and nothing spent."""
        for _ in range(iterations):
            self.rule.charge(np.zeros(self.entities.shape))

    def state(self) -> State:
        return state_of(**self._memories)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, **self._memories)

    @property
    def _memories(self) -> dict[str, object]:
        models = {} if self._joint is None else self._joint.models
        joint = {f"joint.{name}": model for name, model in models.items()}
        own = {"cost": self.cost, "rule": self.rule, "allowance": self.allowance, "view": self._joint}
        return own | joint
