"""A price that moves by its logarithm (`control.price` decides at it): alone, kept by a server, or joint.

With a schedule the learning rate is η_t = η·f_t. What is accumulated scales with it, ‖b − v‖² with its
square, and so does what a unit of cost can bring: a decision to send is made at λ·f_t². The price itself
moves as it would without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, Number
from flexfl.control.allowance import Allowance
from flexfl.learning_rate import Factor
from flexfl.state import State

_GAIN = 3.0
"""Near the end of a hard budget's period κ is 3/(iterations left): the price must still be able to follow."""
_FALL = 30.0
"""A price falls to e⁻³⁰ of its first value and no further: it must find its way back when costs return."""


def default_step(iterations: int) -> float:
    """Return κ for a run of T iterations: 0.03, or 20/T if that is more; T = 0 is not known.

    >>> default_step(3000), default_step(100)
    (0.03, 0.2)
    """
    return max(0.03, 20.0 / iterations if iterations else 0.0)


def next_price(log_price: Number, spent: Number, target: Number, budget: Number, step: float) -> FloatArray:
    """Return ln λ' = ln λ + κ·(φ − φ̃_t) / φ̃.

    >>> next_price(0.0, spent=3.0, target=1.0, budget=1.0, step=0.03)
    array(0.06)
    """
    with np.errstate(invalid="ignore"):  # ∞ without a limit
        return np.asarray(log_price + step * (np.asarray(spent) - target) / budget)


class LogPrice:
    """The prices of one cost, for all entities that decide together.

    A price begins with the first decision that has something to weigh (`begin`); until then it is NaN.

    Args:
        allowance: the budget, by queue and in this iteration.
        step: κ.
        factor: f_t of the learning rate, by iteration, for prices of sending; 1 if left out.

    Attributes:
        log: ln λ, one for each queue.
        unlimited: which entities have no budget.
    """

    relative = False

    def __init__(self, allowance: Allowance, step: float = 0.03, factor: Factor = lambda t: 1.0) -> None:
        self.allowance, self.step, self._factor = allowance, step, factor
        self.unlimited: BoolArray = np.isinf(allowance.by_entity(allowance.limits))
        self.log = np.full(allowance.limits.shape, np.nan)
        self._least = np.full(allowance.limits.shape, np.nan)
        self._first = np.full(self.unlimited.shape, np.nan)  # of entities in the iteration they begin in

    @property
    def price(self) -> FloatArray:
        """λ of each entity; NaN before it has begun."""
        log = self.allowance.by_entity(self.log)
        return np.exp(np.where(np.isnan(log), self._first, log))

    @property
    def pressure(self) -> FloatArray:
        """λ·f_t² that each entity decides against; NaN before it has begun."""
        return self.price * self._scale

    @property
    def _scale(self) -> float:
        """f_t²."""
        return self._factor(max(0, self.allowance.iteration)) ** 2

    @property
    def priced(self) -> FloatArray:
        """The same, and 0 for entities without a budget or a price, to whom nothing costs anything."""
        return np.where(self.unlimited | np.isnan(self.pressure), 0.0, self.pressure)

    @property
    def waiting(self) -> BoolArray:
        """Which entities have a budget that is known and no price yet."""
        return ~self.unlimited & np.isnan(self.pressure) & np.isfinite(self.allowance.nominal_each)

    def begin(self, price: FloatArray) -> None:
        """Set what entities decide against first, λ·f_t²; NaN for the others."""
        with np.errstate(divide="ignore"):
            self._first = np.where(np.isnan(self._first), np.log(price / self._scale), self._first)

    @property
    def first(self) -> FloatArray:
        """ln λ of entities that begin in this iteration; NaN for the others."""
        return self._first

    def charge(self, spent: Number) -> None:
        """Move to the next iteration, given what each entity was charged in this one.

        Entities that share a budget begin with the highest of their prices.
        """
        self.take_over(self._first)
        own = self.allowance
        step = max(self.step, _GAIN / own.remaining) if own.hard else self.step
        moved = next_price(self.log, own.by_queue(spent), own.target, own.nominal, step)
        known = np.isfinite(own.nominal) & np.isfinite(own.limits)
        self.log = np.where(known, np.maximum(self._least, moved), self.log)

    def take_over(self, first: FloatArray) -> None:
        """Begin queues with the first prices of their entities."""
        own = self.allowance
        self._first = np.full(self._first.shape, np.nan)
        if not np.isfinite(first).any():
            return
        start = np.full(own.limits.shape, -np.inf)
        if own.members is None:
            start = np.where(np.isnan(first), start, first)
        else:
            np.maximum.at(start, own.members, np.where(np.isnan(first), -np.inf, first))
        new = np.isnan(self.log) & np.isfinite(start)
        self.log = np.where(new, start, self.log)
        self._least = np.where(new, start - _FALL, self._least)

    def as_remote(self) -> LogPrice:
        """Return the same prices as a client sees them: kept by the server."""
        return RemotePrice(self.allowance, self.step, self._factor)

    def state(self) -> State:
        return {"log": self.log, "least": self._least}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name in ("log", "least"):
            if np.size(state[name]) != self.log.size:
                raise ValueError(f"{name} must have {self.log.size} prices, got {np.size(state[name])}")
        self.log, self._least = (
            np.array(state[name], dtype=float).reshape(self.log.shape) for name in ("log", "least")
        )
        self._first = np.full(self._first.shape, np.nan)


class RemotePrice(LogPrice):
    """A price that the server keeps, since others are charged to it too; it sends it once it has begun."""

    def learn(self, price: float | None) -> None:
        """Take over the price that the server has sent; None before it has begun."""
        self._first = np.full(self._first.shape, np.nan)
        with np.errstate(divide="ignore"):
            log = np.nan if price is None else np.log(price)
        self.log = np.full(self.log.shape, log)

    def charge(self, spent: Number) -> None:
        """Do nothing: the server charges it when it learns what was spent."""


class JointPrice(LogPrice):
    """The price of a budget over several decisions: a factor of what each of them began with.

    Objectives of computing (1/q) and of sending (‖b − v‖²) have different units; so each knob begins with a
    price of its own, at which its share of the budget is spent, and the factor moves them together. That of
    sending goes with the learning rate, too (`control.joint.JointView`).
    """

    relative = True

    def __init__(self, allowance: Allowance, step: float = 0.03) -> None:
        super().__init__(allowance, step)
        self.log = np.zeros(allowance.limits.shape)
        self._least = self.log - _FALL

    def as_remote(self) -> LogPrice:
        """Return the same factors as a client sees them: kept by the server."""
        return RemoteJointPrice(self.allowance, self.step)


class RemoteJointPrice(JointPrice):
    """Such a factor, kept by the server."""

    def learn(self, price: float) -> None:
        """Take over the factor that the server has sent."""
        self.log = np.full(self.log.shape, np.log(price))

    def charge(self, spent: Number) -> None:
        """Do nothing: the server charges it when it learns what was spent."""
