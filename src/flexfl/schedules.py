"""Learning-rate schedules: η_t = η · factor(t, T), with T known from the start.

Each member states its factor over p, the share of the run that is over: 0 in the first iteration, 1 in the
last. The factor is never 0: an iteration that learns nothing would still cost something, and the price of
sending, which goes with its square (`control.price`), would be nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

from pydantic import BeforeValidator

from flexfl.errors import ScheduleError
from flexfl.parameters import Positive, Share, fault, is_number
from flexfl.registry import Family


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


def checked_factor(schedule: Schedule, t: int, T: int) -> float:
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
