"""The learning rate η_t: a number or one that follows the message rate, times a schedule's factor.

    η_t = η · factor(t, T), with T known from the start

Schedules state their factor over p, the share of the run that is over: 0 in the first iteration, 1 in the
last. It is never 0: an iteration that learns nothing would still cost something, and the price of sending,
which goes with its square (`control.log_price`), would be nothing.

`"auto"`: a client that sends seldom lets its steps pile up in the residual, and what arrives at once is the
sum of many of them: the fewer messages, the smaller a step must be. The best rates that were tried lie near
0.8 times the number of messages per client and iteration, ρ. So η = min(0.1, 0.85·ρ_t), with ρ_t estimated
from what was sent before iteration t, by all clients together: η_t is the same for all of them, and between
machines the server sends it along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from flexfl.errors import ScheduleError
from flexfl.parameters import Positive, Share, fault, is_number
from flexfl.registry import Family
from flexfl.state import State

AUTO: Literal["auto"] = "auto"
Rate = float | Literal["auto"]
CAP, SHARE = 0.1, 0.85
FORGET = 0.99
"""An iteration counts so much of what it did, one later: ρ is a mean over about the last 100."""
PRIOR = 10.0
"""At first ρ is as if so many iterations had just had the messages that allow the largest rate."""
LEAST = 1e-6
"""Of η without a schedule: after a long silence the clients must still have something to send."""
Factor = Callable[[int], float]
"""η_t/η by iteration."""


@runtime_checkable
class Schedule(Protocol):
    """The learning rate over a run: pure maths, without a memory."""

    def factor(self, t: int, T: int) -> float:
        """Return η_t/η > 0 for iteration t, counted from 0, of T; every client computes the same."""
        ...


def over(t: int, T: int) -> float:
    """Return p, the share of the run that is over: t/(T − 1).

    >>> over(0, 11), over(5, 11), over(10, 11)
    (0.0, 0.5, 1.0)
    """
    return min(1.0, t / max(1, T - 1))


@dataclass(frozen=True)
class Constant:
    """The same learning rate throughout, as in the paper: 1."""

    def factor(self, t: int, T: int) -> float:
        return 1.0


def _shares(value: Any) -> list[float]:
    found = value if isinstance(value, list | tuple) else [value]
    if not found or not all(is_number(share) and 0 < share < 1 for share in found):
        raise fault("must be shares of the run in (0, 1)", value, "for example at = [0.5, 0.75]")
    return [float(share) for share in found]


@dataclass(frozen=True)
class Step:
    """Steps down: by^m, with m the number of shares in `at` that the run is past.

    >>> [Step(at=[0.5], by=0.1).factor(t, 4) for t in range(4)]
    [1.0, 1.0, 0.1, 0.1]
    """

    at: Annotated[Any, BeforeValidator(_shares)] = field(default_factory=lambda: [0.5, 0.75])
    by: Positive = 0.1

    def factor(self, t: int, T: int) -> float:
        p = over(t, T)
        return float(self.by ** sum(p >= share for share in self.at))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to f = `final`: f + (1 − f)·(1 + cos πp)/2 (Loshchilov and Hutter, 2017).

    They let it come to 0; see above.
    """

    final: Share = 0.05

    def factor(self, t: int, T: int) -> float:
        fallen = 0.5 * (1.0 - math.cos(math.pi * over(t, T)))
        return max(self.final, 1.0 - (1.0 - self.final) * fallen)


@dataclass(frozen=True)
class WSD:
    """Warm-up, stable, decay, without the warm-up: constant, then linear down to f = `final`.

    1 while p ≤ 1 − d, with d = `decay` the last part of the run, then f + (1 − f)·(1 − p)/d.

    >>> [round(WSD(decay=0.5, final=0.1).factor(t, 5), 3) for t in range(5)]
    [1.0, 1.0, 1.0, 0.55, 0.1]
    """

    decay: Share = 0.3
    final: Share = 0.05

    def factor(self, t: int, T: int) -> float:
        left = min(1.0, (1.0 - over(t, T)) / self.decay)
        return max(self.final, 1.0 - (1.0 - self.final) * (1.0 - left))


SCHEDULES = Family("schedule", {"constant": Constant, "step": Step, "cosine": Cosine, "wsd": WSD})


def factor_of(schedule: Schedule, T: int) -> Factor:
    """Return the factor of a schedule by iteration, checked."""
    return partial(_checked_factor, schedule, T)


def _checked_factor(schedule: Schedule, T: int, t: int) -> float:
    """Return the factor of iteration t.

    Raises:
        ScheduleError: it is not a number > 0.
    """
    found = schedule.factor(t, T)
    try:
        factor = float(found)
    except (TypeError, ValueError):
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ScheduleError(type(schedule).__name__, found, t)
    return factor


def nominal(learning_rate: Rate) -> float:
    """Return η, or the largest that an automatic one can be.

    >>> nominal(0.05), nominal("auto")
    (0.05, 0.1)
    """
    return CAP if learning_rate == AUTO else float(learning_rate)


def following(message_rate: float) -> float:
    """Return min(0.1, 0.85·ρ).

    >>> following(0.5), following(0.04)
    (0.1, 0.034)
    """
    return min(CAP, max(LEAST, SHARE * message_rate))


def next_message_rate(message_rate: float, weight: float, sent: float) -> tuple[float, float]:
    """Return ρ' = ρ + (m − ρ)/n' and n' = 0.99·n + 1, with m messages per client in this iteration.

    ρ is the mean of all iterations so far, and of the prior ones, in which each counts 0.99 of the next; n
    is the sum of these weights.
    """
    weight = FORGET * weight + 1.0
    return message_rate + (sent - message_rate) / weight, weight


class LearningRate:
    """η_t over a run; remembers ρ if it follows the message rate.

    Args:
        learning_rate: η, or "auto".
        factor: of the schedule, by iteration.
    """

    def __init__(self, learning_rate: Rate, factor: Factor) -> None:
        self._eta, self._factor = learning_rate, factor
        self.follows = learning_rate == AUTO
        self._message_rate, self._weight = CAP / SHARE, PRIOR

    def at(self, t: int) -> float:
        """Return η_t."""
        eta = following(self._message_rate) if self._eta == AUTO else self._eta
        return eta * self._factor(t)

    def alone(self, t: int) -> float | None:
        """Return η_t as one client knows it: None if it follows the messages of all."""
        return None if self.follows else self.at(t)

    def add(self, sent: float) -> None:
        """Take note of the messages per client in an iteration that is over."""
        if self.follows:
            self._message_rate, self._weight = next_message_rate(self._message_rate, self._weight, sent)

    def state(self) -> State:
        return {"message_rate": np.array([self._message_rate, self._weight])} if self.follows else {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        if self.follows:
            self._message_rate, self._weight = map(float, state["message_rate"])
