"""The three knobs: draw this iteration's cost, decide, charge, observe, record. Here and nowhere else.

`Knob` is for computing (P3.1, (16), line 5), `Sender` for uplink and downlink (P3.2, P3.3, (17), (18),
lines 7 and 11). The oracle, the engine and both ends of a deployment run these.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray
from flexfl.clock import Clock
from flexfl.compress.base import Compressor
from flexfl.compress.message import Message
from flexfl.compress.plain import PlainVectors
from flexfl.control.allowance import Allowance
from flexfl.control.controlled import Capped, Controlled, Vectors
from flexfl.control.joint import JointView
from flexfl.control.policy import ComputeRule, SendRule
from flexfl.costs.available import Available, unavailable
from flexfl.costs.base import Cost, CostModel
from flexfl.counting import Counts, size_in
from flexfl.errors import DecisionError, rule_error
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities, Moment, Streams


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


class Knob(Controlled):
    """Who computes, and what that costs."""

    rule: ComputeRule

    def decide(self, iteration: int, absent: BoolArray | None = None) -> Computing:
        """Solve P3.1, charge (16), and draw who computes (line 5); those who are absent do not."""
        moment, cost = self._open(iteration)
        with np.errstate(invalid="ignore", divide="ignore"):  # α = ∞, for which the rule has no q
            q = self._ask(moment, cost)
            numeric = q.dtype.kind in "fiu"
            charged = np.asarray(cost(q) if numeric else 0.0)
            finite = not numeric or (not self._others and np.isfinite(charged).all())
            away = None if finite else unavailable((cost, *self._others.values()), q)
            if self._hard and numeric:
                away = self._with_exhausted(cost, away)
        if absent is not None:
            away = absent if away is None else away | absent
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
        self._spend(spent, computed.astype(float))
        self._planned = spent
        return Computing(q, computed, charged, spent, pressure)

    def _with_exhausted(self, cost: Cost, away: BoolArray | None) -> BoolArray | None:
        """Return who cannot compute, with those for whom it would cost more than is left."""
        margin = getattr(self.cost, "margin", 1.0)  # a measured cost is known only afterwards
        ones = np.ones(self.entities.shape)
        over = self._over(np.asarray(cost(ones)) * margin, ones)
        if not over.any():
            return away
        return over if away is None else over | away

    def idle(self, iteration: int) -> Computing:
        """Take part in an iteration without computing."""
        shape = self.entities.shape
        zero = np.zeros(shape)
        self._open(iteration)
        self._others = {}
        pressure = self._charge(zero, zero)
        return Computing(np.full(shape, np.nan), np.zeros(shape, dtype=bool), zero, zero, pressure)

    def observe(self, seconds: float) -> bool:
        """Take note of how long a computation took; return whether that is its cost.

        A meter that was set back has measured nothing.
        """
        if self._measured is not None:
            seconds = max(0.0, seconds)
            self._measured.observe(1.0, seconds)
            self._others = {}  # joint budgets count so many times the knob's own cost
            self._spend(np.asarray(seconds) - self._planned, np.zeros(self.entities.shape))
        return self._measured is not None

    def _checked(self, q: FloatArray, moment: Moment, cost: Cost) -> FloatArray:
        must = "a probability q in (0, 1]"
        if q.dtype.kind not in "fiu":
            raise DecisionError(self._rule_name, must, f"an array of {q.dtype}", "all", moment.iteration)
        if q.size and not (q.min() > 0 and q.max() <= 1):  # NaN is neither
            raise self._refuse(must, q, ~((q > 0) & (q <= 1)), moment, cost)
        return q


class Sender(Controlled):
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
        allowance: Allowance | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(role, cost, rule, entities, streams, dim, joint, allowance, clock)
        self.compressor: Compressor | list[Compressor] = compressor
        if callable(getattr(compressor, "state", None)):  # it has a memory: each sender has its own
            self.compressor = [copy.deepcopy(compressor) for _ in range(entities.numbers.size)]
        self.counts: Counts = getattr(cost, "counts", "components")
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

    def decide(self, iteration: int, vectors: Vectors, absent: BoolArray | None = None) -> Sending:
        """Solve P3.2 (or P3.3) and charge (17) (or (18)); those who are absent send nothing."""
        moment, cost = self._opened(iteration)
        amounts = self._checked(self._ask(moment, cost, vectors), vectors, moment, cost)
        for each in (cost, *self._others.values()):
            if (away := getattr(each, "away", None)) is not None:  # whose links are down send nothing
                amounts = np.where(away, 0, amounts)
        if self._hard:
            amounts = self._within(amounts, vectors, moment, cost)
        if absent is not None:
            amounts = np.where(absent, 0, amounts)
        return self._pay(amounts, vectors.components(amounts), vectors.nbytes(amounts), moment, cost)

    def _size(self, components: IntArray, nbytes: IntArray) -> NDArray[Any]:
        """Return what the cost is a function of."""
        return size_in(self.counts, components, nbytes)

    def _within(self, amounts: IntArray, vectors: Vectors, moment: Moment, cost: Cost) -> IntArray:
        """Return the best amounts of which none costs more than is left; those who can pay keep theirs.

        The rule is asked once more, with a cost that is infinite for what is too dear. If that is still too
        dear, since the rule does not look at costs or the message is longer than was estimated, nothing is
        sent.
        """
        over = self._too_dear(amounts, vectors, moment, cost)
        if not over.any():
            return amounts

        def barred(size: Any) -> BoolArray:
            sizes = np.asarray(size)
            # Those who need not be asked again are offered nothing.
            return np.asarray((sizes > 0) & (~over | self._over(np.asarray(cost(sizes)), sizes)))

        second = self._ask(moment, Capped(cost, barred), vectors)
        amounts = np.where(over, self._checked(second, vectors, moment, cost), amounts)
        return np.where(self._too_dear(amounts, vectors, moment, cost), 0, amounts)

    def _too_dear(self, amounts: IntArray, vectors: Vectors, moment: Moment, cost: Cost) -> BoolArray:
        k, nbytes = vectors.components(amounts), vectors.nbytes(amounts)
        return (amounts > 0) & self._over(self._bill(k, nbytes, moment, cost), self._size(k, nbytes))

    def send(
        self, iteration: int, b: FloatArray, absent: BoolArray | None = None
    ) -> tuple[list[Message], FloatArray, Sending]:
        """Decide on b, (N, D) or (D,), and make the messages, by the plain path.

        Returns:
            The message of each entity; what stays, b − v; and what was decided.
        """
        self._ahead = self._opened(iteration)
        vectors = PlainVectors(b, self.compressor, self._ahead[0], self.counts)
        sending = self.decide(iteration, vectors, absent)
        messages = vectors.messages(sending.amounts)
        kept = b.copy()  # line 7 (or 11)
        for row, message in zip(kept.reshape(-1, b.shape[-1]), messages, strict=True):
            row[message.indices] -= message.values
        return messages, kept, sending

    def resend(self, iteration: int, components: int, nbytes: int) -> Sending:
        """Pay for a message that is sent once more, and decide nothing.

        If it costs more than is left, nothing is sent: the message waits.
        """
        k, size = np.asarray(components), np.asarray(nbytes)
        moment, cost = self._opened(iteration)
        cost = getattr(cost, "present", cost)  # it is sent: the link is up
        self._others = {name: getattr(other, "present", other) for name, other in self._others.items()}
        if self._hard and self._over(self._bill(k, size, moment, cost), self._size(k, size)).any():
            k, size = np.zeros_like(k), np.zeros_like(size)
        return self._pay(k, k, size, moment, cost)

    def _opened(self, iteration: int) -> tuple[Moment, Cost]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0].iteration == iteration:
            return ahead
        return self._open(iteration)

    def _pay(
        self, amounts: IntArray, components: IntArray, nbytes: IntArray, moment: Moment, cost: Cost
    ) -> Sending:
        charged = self._bill(components, nbytes, moment, cost)
        if self._measured is not None:
            self._measured.observe(components, np.asarray(nbytes, dtype=float))
        counted = self._size(components, nbytes)
        pressure = self._charge(charged, counted)
        self._spend(charged, counted)
        return Sending(self.role, amounts, components, nbytes, charged, pressure)

    def _bill(self, components: IntArray, nbytes: IntArray, moment: Moment, cost: Cost) -> FloatArray:
        """Return what messages cost: as planned, the bytes of what is measured, or those on the link."""
        planned = self._price(cost, self._size(components, nbytes), moment)
        if self._measured is None:
            return planned
        size, bill = np.asarray(nbytes, dtype=float), getattr(self._measured, "bill", None)
        return size if bill is None else self._sound(bill(components, size), moment)

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
