"""The three knobs: draw this iteration's cost, decide, charge, observe, record. Here and nowhere else.

`Knob` is for computing (P3.1, (16), line 5), `Sender` for uplink and downlink (P3.2, P3.3, (17), (18),
lines 7 and 11). The oracle, the engine and both ends of a deployment run these.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray
from flexfl.compress.base import Choices, Compressor
from flexfl.compress.message import Message
from flexfl.compress.plain import PlainVectors
from flexfl.control.joint import JointView
from flexfl.control.policy import ComputeRule, SendRule
from flexfl.control.queues import RemoteQueue
from flexfl.costs.available import Available, unavailable
from flexfl.costs.base import Cost, CostModel, Measured
from flexfl.errors import CostError, DecisionError, Fault, InputError, rule_error
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities, Moment, Streams


class Vectors(Choices, Protocol):
    """The vectors b of a sender's entities: what the rule may ask, and what amounts come to."""

    def possible(self, amounts: IntArray) -> BoolArray: ...
    def nbytes(self, amounts: IntArray) -> IntArray: ...


@dataclass(frozen=True, eq=False)
class Computing:
    """Who computes in one iteration.

    Attributes:
        prob: q; NaN for those who cannot compute.
        computed: 𝟙, whether each entity computes.
        charged: λ(q), the expected cost, which the queue is charged.
        spent: λ(1) for those who compute, λ(0) for the others; or what was measured.
        pressure: what the decision was made against.
    """

    prob: FloatArray
    computed: BoolArray
    charged: FloatArray
    spent: FloatArray
    pressure: FloatArray

    def record(self) -> dict[str, Any]:
        """Return it by the names of `results.columns`."""
        return {
            "computed": self.computed,
            "compute_prob": self.prob,
            "compute_objective": 1.0 / self.prob,
            "compute_cost": self.charged,
            "compute_spent": self.spent,
            "compute_queue": self.pressure,
        }


@dataclass(frozen=True, eq=False)
class Sending:
    """What is sent in one iteration.

    Attributes:
        amounts: as the rule decided, in the compressor's sense.
        components: k.
        nbytes: the size of each message.
        charged: φ, what the queue is charged.
        pressure: what the decision was made against.
    """

    role: str
    amounts: IntArray
    components: IntArray
    nbytes: IntArray
    charged: FloatArray
    pressure: FloatArray

    def record(self) -> dict[str, Any]:
        """Return it by the names of `results.columns`."""
        return {
            f"{self.role}_components": self.components,
            f"{self.role}_bytes": self.nbytes,
            f"{self.role}_cost": self.charged,
            f"{self.role}_queue": self.pressure,
        }


class _Controlled:
    """What a knob and a sender share: a cost, a rule, and those who decide."""

    def __init__(
        self,
        role: str,
        cost: CostModel,
        rule: ComputeRule | SendRule,
        entities: Entities,
        streams: Streams,
        dim: int,
        joint: JointView | None = None,
    ) -> None:
        self._joint, self._others = joint, dict[str, Cost]()
        self.remote: tuple[RemoteQueue, ...] = ()
        """Queues of the rule whose lengths the server sends."""
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
        moment = self._streams.moment(self.role, iteration, self._dim, self.entities)
        if self._joint is not None:
            self._others = self._joint.at(moment)
        return moment, self.cost.at(moment)

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
        return state_of(cost=self.cost, rule=self.rule, **self._joint_costs)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, cost=self.cost, rule=self.rule, **self._joint_costs)

    @property
    def _joint_costs(self) -> dict[str, object]:
        models = {} if self._joint is None else self._joint.models
        return {f"joint.{name}": model for name, model in models.items()}


class Knob(_Controlled):
    """Who computes, and what that costs."""

    rule: ComputeRule

    def decide(self, iteration: int) -> Computing:
        """Solve P3.1, charge (16), and draw who computes (line 5)."""
        moment, cost = self._open(iteration)
        with np.errstate(invalid="ignore", divide="ignore"):  # α = ∞, for which the rule has no q
            q = self._ask(moment, cost)
            numeric = q.dtype.kind in "fiu"
            charged = np.asarray(cost(q) if numeric else 0.0)
            finite = not numeric or (not self._others and np.isfinite(charged).all())
            away = None if finite else unavailable((cost, *self._others.values()), q)
        if away is not None:
            q, cost = np.where(away, 1.0, q), Available(cost, ~away)
            charged = cost(q)
        q = self._checked(q, moment, cost)
        charged = self._sound(charged, moment)
        pressure = self._charge(charged, q if away is None else np.where(away, 0.0, q))
        computed = moment.uniform("bernoulli") < q
        if away is not None:
            q, computed = np.where(away, np.nan, q), computed & ~away
        spent = self._price(cost, computed.astype(float), moment)
        return Computing(q, computed, charged, spent, pressure)

    def idle(self) -> Computing:
        """Take part in an iteration without computing."""
        shape = self.entities.shape
        zero = np.zeros(shape)
        self._others = {}
        pressure = self._charge(zero, zero)
        return Computing(np.full(shape, np.nan), np.zeros(shape, dtype=bool), zero, zero, pressure)

    def observe(self, seconds: float) -> bool:
        """Take note of how long a computation took; return whether that is its cost."""
        if self._measured is not None:
            self._measured.observe(1.0, seconds)
        return self._measured is not None

    def _checked(self, q: FloatArray, moment: Moment, cost: Cost) -> FloatArray:
        must = "a probability q in (0, 1]"
        if q.dtype.kind not in "fiu":
            raise DecisionError(self._rule_name, must, f"an array of {q.dtype}", "all", moment.iteration)
        if q.size and not (q.min() > 0 and q.max() <= 1):  # NaN is neither
            raise self._refuse(must, q, ~((q > 0) & (q <= 1)), moment, cost)
        return q


class Sender(_Controlled):
    """What is sent, and what that costs."""

    rule: SendRule

    def __init__(
        self,
        role: str,
        cost: CostModel,
        rule: SendRule,
        entities: Entities,
        streams: Streams,
        dim: int,
        compressor: Compressor,
        joint: JointView | None = None,
    ) -> None:
        super().__init__(role, cost, rule, entities, streams, dim, joint)
        self.compressor: Compressor | list[Compressor] = compressor
        if callable(getattr(compressor, "state", None)):  # it has a memory: each sender has its own
            self.compressor = [copy.deepcopy(compressor) for _ in range(entities.numbers.size)]
        self._ahead: tuple[Moment, Cost] | None = None

    def prepare(self, iteration: int) -> tuple[FloatArray, Moment]:
        """Draw the cost before b is known; return the threshold that the rule will ask about, and when."""
        self._ahead = moment, cost = self._open(iteration)
        try:
            cut = self.rule.cut(self._seen(cost))
            np.broadcast_to(np.multiply(cut, 1.0), moment.shape)  # numbers, one for each entity
        except Exception as error:
            raise rule_error(error, self._rule_name, "cut", self.role, iteration) from error
        return cut, moment

    def decide(self, iteration: int, vectors: Vectors) -> Sending:
        """Solve P3.2 (or P3.3) and charge (17) (or (18))."""
        moment, cost = self._opened(iteration)
        amounts = self._checked(self._ask(moment, cost, vectors), vectors, moment, cost)
        return self._pay(amounts, vectors.components(amounts), vectors.nbytes(amounts), moment, cost)

    def send(self, iteration: int, b: FloatArray) -> tuple[list[Message], FloatArray, Sending]:
        """Decide on b, (N, D) or (D,), and make the messages, by the plain path.

        Returns:
            The message of each entity; what stays, b − v; and what was decided.
        """
        self._ahead = self._opened(iteration)
        vectors = PlainVectors(b, self.compressor, self._ahead[0])
        sending = self.decide(iteration, vectors)
        messages = vectors.messages(sending.amounts)
        kept = b.copy()  # line 7 (or 11)
        for row, message in zip(kept.reshape(-1, b.shape[-1]), messages, strict=True):
            row[message.indices] -= message.values
        return messages, kept, sending

    def resend(self, iteration: int, components: int, nbytes: int) -> Sending:
        """Pay for a message that is sent once more, and decide nothing."""
        k, size = np.asarray(components), np.asarray(nbytes)
        return self._pay(k, k, size, *self._opened(iteration))

    def _opened(self, iteration: int) -> tuple[Moment, Cost]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0].iteration == iteration:
            return ahead
        return self._open(iteration)

    def _pay(
        self, amounts: IntArray, components: IntArray, nbytes: IntArray, moment: Moment, cost: Cost
    ) -> Sending:
        charged = self._price(cost, components, moment)
        if self._measured is not None:
            size = np.asarray(nbytes, dtype=float)
            bill = getattr(self._measured, "bill", None)
            charged = size if bill is None else self._sound(bill(components, size), moment)
            self._measured.observe(components, size)
        return Sending(self.role, amounts, components, nbytes, charged, self._charge(charged, components))

    def _checked(self, amounts: IntArray, vectors: Vectors, moment: Moment, cost: Cost) -> IntArray:
        if amounts.dtype.kind not in "iu":
            found = f"an array of {amounts.dtype}"
            raise DecisionError(self._rule_name, "whole amounts from 0 on", found, "all", moment.iteration)
        if amounts.size and not (amounts.min() >= 0 and (possible := vectors.possible(amounts)).all()):
            wrong = amounts < 0 if amounts.min() < 0 else ~possible
            raise self._refuse("amounts that its compressor offers", amounts, wrong, moment, cost)
        return amounts

    def state(self) -> State:
        return super().state() | state_of(**self._compressors)

    @property
    def _compressors(self) -> dict[str, object]:
        """The compressors by name, those of senders with a memory by their place."""
        if isinstance(self.compressor, list):
            return {f"compressor.{place}": one for place, one in enumerate(self.compressor)}
        return {"compressor": self.compressor}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._ahead = None
        super().restore(state)
        restore_all(state, **self._compressors)
