"""The learning rate η_t: a number or one that follows the message rate, times a schedule's factor.

A client that sends seldom lets its steps pile up in the residual, and what arrives at once is the sum of
many of them: the fewer messages, the smaller a step must be. The best rates that were tried lie near 0.8
times the number of messages per client and iteration, ρ; `"auto"` takes

    η_t = min(0.1, 0.85·ρ_t) · factor(t, T)

with ρ_t estimated from what was sent before iteration t, by all clients together, so that η_t is the same
for all of them. Between machines the server sends it along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flexfl.state import State

AUTO: Literal["auto"] = "auto"
Rate = float | Literal["auto"]
CAP, SHARE = 0.1, 0.85
FORGET = 0.99
"""An iteration counts so much of what it did, one later: ρ is a mean over about the last 100."""
PRIOR = 10.0
"""At first ρ is as if there had been so many iterations with just the messages that allow the largest rate."""
LEAST = 1e-6
"""Of η without a schedule: after a long silence the clients must still have something to send."""


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

    def __init__(self, learning_rate: Rate, factor: Callable[[int], float]) -> None:
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
