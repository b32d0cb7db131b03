"""What may still be spent: a budget with its horizon, the whole run or a window of time.

A budget is an average for each iteration, a total for the run, or a rate such as 50 MB a month. With T known
each of them is an amount M for a period, and what is left of it is shared out over the iterations left:

    φ̃_t = (M − spent) / (iterations left)

A hard budget is also a limit: `left` is what a decision may cost at most, so that M is never exceeded. For a
rate the periods are windows of its time, one after the other from the beginning of the run.

A run that ends by the clock, after a duration, has as many iterations left as fit in what is left of it, at
the pace so far. How many it will have is an estimate then: a hard average is kept at any time, not only at
the end.

Legend: M amount of a period · φ̃ nominal share of an iteration · φ̃_t share of this iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.state import State

_SMOOTHING = 0.1
_SURPRISE = 10.0
"""An iteration moves the pace as if it had taken at most so many times as long as those before."""
_MOST = 10.0
"""φ̃_t is at most so many times φ̃: after a long quiet stretch, spending grows and does not explode."""


class HasPeriod(Protocol):
    """A budget (`control.budget`) or a joint one: what its limits are for."""

    @property
    def per(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class Allowance:
    """What the entities of a budget may spend in this iteration.

    Args:
        budget: what its limits are for: an iteration, the run, or a time.
        limits: one for each queue, (Q,) or (); ∞ is no limit.
        iterations: T; 0 if it is not known, and an average then has no period.
        members: the queue of each entity, where entities share; by default each has its own.
        hard: whether the amount of a period may never be exceeded.
        sharing: how many decisions share each queue in an iteration, (Q,).
        duration: seconds by the clock after which the run ends, if T iterations have not ended it.

    Attributes:
        iteration: t; −1 before the first one is opened.
        nominal: φ̃, (Q,); NaN for what goes by the clock until an iteration was timed.
        target: φ̃_t, (Q,); φ̃ for an average that is not hard.
        left: what may be spent of this period's amount, (Q,); ∞ where the budget is not hard.
        remaining: how many iterations the period still has, this one included; ∞ if that is not known.
        total: what was spent since the beginning, (Q,).
        jumps: how often the clock went backwards; such steps count as no time.
        reserved: what others may have spent and not reported yet, (Q,): it is not left (`control.shared`).
    """

    remote = False
    """Whether the server keeps it."""

    def __init__(
        self,
        budget: HasPeriod,
        limits: Number,
        *,
        iterations: int = 0,
        members: IntArray | None = None,
        hard: bool = False,
        sharing: Number | IntArray = 1,
        duration: float = math.inf,
    ) -> None:
        self.limits = np.asarray(limits, dtype=np.float64)
        self._per, self._window = budget.per, budget.seconds
        self.iterations, self.members, self.sharing = iterations, members, np.asarray(sharing)
        self.hard = hard and (iterations > 0 or self._per != "iteration")
        self._duration, self._ends_by_clock = duration, math.isfinite(duration)
        self.iteration, self._expected = -1, float(iterations)  # t; how many there will be
        self.jumps, self.reserved = 0, np.zeros(self.limits.shape)
        self.remaining = float(iterations or math.inf)
        self.total = np.zeros(self.limits.shape)
        self._spent = np.zeros(self.limits.shape)  # in this period
        self._last = self._pace = math.nan  # what the clock said; seconds of an iteration
        self._elapsed, self._offset = 0.0, 0.0  # seconds of the run; what jumps have taken off the clock
        self._number = 0.0  # of the window
        self.nominal = self.target = self._share()
        self.left = self._left(0.0)

    def open(self, iteration: int, seconds: float = math.nan, idle: Number = 0.0) -> None:
        """Begin an iteration.

        Args:
            iteration: t.
            seconds: since the run began, by its clock.
            idle: what an iteration costs each queue whatever is decided: so much is kept back for every
                one that is left.
        """
        if self._per == "time" or self._ends_by_clock:
            self._advance(seconds)
        self.iteration, self.remaining = iteration, self._remaining(iteration)
        remaining = self.remaining
        if self._ends_by_clock:
            self._expected = iteration + self._in_run(iteration) if self._pace > 0 else math.nan
        self.nominal = self._share()
        if self._per == "iteration" and not self.hard:
            self.target = self.nominal
        else:
            rest = (self._amount(remaining) - self._spent) / remaining
            self.target = np.minimum(np.maximum(rest, 0.0), _MOST * self.nominal)
        kept_back = self.by_queue(idle) if np.any(idle) else np.zeros(())
        if self._per == "iteration" and self._ends_by_clock:  # every iteration to come brings its share
            kept_back = np.maximum(0.0, kept_back - self.limits)
        self.left = self._left(kept_back * (remaining - 1) if np.any(kept_back > 0) else 0.0)

    def spend(self, spent: Number) -> None:
        """Take note of what each entity has spent in this iteration."""
        by_queue = self.by_queue(spent)
        self._spent, self.total = self._spent + by_queue, self.total + by_queue

    def by_queue(self, values: Number) -> FloatArray:
        """Return the sum over the members of each queue, given one for each entity."""
        if self.members is None:
            return np.asarray(values, dtype=np.float64)
        summed = np.zeros(self.limits.shape)
        np.add.at(summed, self.members, values)
        return summed

    def by_entity(self, values: Number) -> FloatArray:
        """Return the number of each entity's queue."""
        found = np.asarray(values)
        return found if self.members is None else np.asarray(found[self.members])

    @property
    def left_each(self) -> FloatArray:
        """What each entity may spend at most: an even share of what is left, since others decide too."""
        return self.by_entity(self.left / self.sharing)

    @property
    def nominal_each(self) -> FloatArray:
        """φ̃ of each entity; a shared one is divided evenly."""
        return self.by_entity(self.nominal / self.sharing)

    @property
    def allowed(self) -> FloatArray:
        """What may be spent in all: by the whole run, or at a rate until now."""
        return self.limits * self._elapsed / self._window if self._per == "time" else self._amount(0)

    def _advance(self, seconds: float) -> None:
        """Take note of the time; begin another window when one is over."""
        if not math.isnan(self._last):
            if seconds < self._last:
                self.jumps += 1
                self._offset += self._last - seconds
            step = seconds + self._offset - self._elapsed
            known = math.isfinite(self._pace)
            if known and self._pace > 0:  # a day off says little about the next iteration
                step = min(step, _SURPRISE * self._pace)
            self._pace = self._pace + _SMOOTHING * (step - self._pace) if known else step
        self._last, self._elapsed = seconds, max(0.0, seconds + self._offset)
        if self.hard and self._per == "time" and self._elapsed // self._window > self._number:
            self._number = self._elapsed // self._window
            self._spent = np.zeros(self.limits.shape)

    def _remaining(self, iteration: int) -> float:
        """Return how many iterations this period still has, this one included; at least 1."""
        in_run = self._in_run(iteration)
        if self._per != "time":
            return in_run
        if not self._pace > 0:
            return 1.0
        in_window = ((self._number + 1) * self._window - self._elapsed) / self._pace
        return max(1.0, min(in_run, in_window) if self.hard or math.isinf(in_run) else in_run)

    def _in_run(self, iteration: int) -> float:
        """Return how many iterations the run still has, this one included; at least 1."""
        in_run = max(1.0, self.iterations - iteration) if self.iterations else math.inf
        if self._ends_by_clock and self._pace > 0:
            in_run = min(in_run, max(1.0, (self._duration - self._elapsed) / self._pace))
        return in_run

    def _amount(self, remaining: float) -> FloatArray:
        """Return M; of a window in which the run will end, the part until then."""
        if self._per == "run":
            return self.limits
        if self._per == "iteration":
            return self.limits * (self.iterations if math.isnan(self._expected) else self._expected)
        begun = self._number * self._window
        lasts = self._elapsed - begun + remaining * (self._pace if self._pace > 0 else 0.0)
        return self.limits * (min(1.0, lasts / self._window) if self.hard else lasts / self._window)

    def _share(self) -> FloatArray:
        """Return φ̃."""
        if self._per == "iteration":
            return self.limits
        if self._per == "run":
            return self.limits / max(self._expected, 1.0)  # in this order NaN stays NaN
        return self.limits * ((self._pace if self._pace > 0 else math.nan) / self._window)

    def _left(self, reserve: Number) -> FloatArray:
        if not self.hard:
            return np.full(self.limits.shape, np.inf)
        amount = self.limits if self._per == "time" else self._amount(0)
        if self._per == "iteration" and self._ends_by_clock and self.iteration >= 0:
            amount = self.limits * (self.iteration + 1)
        return np.maximum(0.0, amount - self._spent - self.reserved - reserve)

    def state(self) -> State:
        clock = np.array([self._last, self._pace, self._elapsed, self._offset, self._number])
        spent = {"spent": self._spent, "total": self.total}
        return spent | ({"clock": clock} if self._per == "time" or self._ends_by_clock else {})

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name in ("spent", "total"):
            if np.size(state[name]) != self.limits.size:
                raise ValueError(f"{name} must have {self.limits.size} numbers, got {np.size(state[name])}")
        self._spent, self.total = (
            np.array(state[name], dtype=float).reshape(self.limits.shape) for name in ("spent", "total")
        )
        if "clock" in state:
            self._last, self._pace, self._elapsed, self._offset, self._number = map(float, state["clock"])


class RemoteAllowance(Allowance):
    """An allowance that the server keeps, since others spend from it too; it sends what is left."""

    remote = True
    _sent: FloatArray = np.asarray(np.inf)

    def learn(self, left: float | None) -> None:
        """Take over what the server has sent: what this entity may spend at most; None for no limit."""
        self._sent = np.asarray(np.inf if left is None else left, dtype=np.float64)

    @property
    def left_each(self) -> FloatArray:
        return self._sent
