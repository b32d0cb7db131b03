"""How fast iterations may follow each other, where a budget goes by the clock.

An iteration takes bytes whatever is decided: a question, an answer that says "nothing", acknowledgements. At
40 iterations a second that alone is 10 kB a second, and no decision can change it. So where a link may carry
B bytes a second, iterations begin at least m·o/B seconds apart, o being those bytes and m `MARGIN`: messages
have the rest of the budget, (m − 1)/m of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray

MARGIN = 3.0
_SMOOTHING = 0.1
_FIRST = 300.0
"""Bytes of an iteration without messages, before one was counted."""
_STEP = 0.2


@dataclass
class Pace:
    """When the next iteration may begin.

    Attributes:
        uplink: bytes a second that each client may send, by name; those without a limit are left out.
        downlink: bytes a second that may be sent to a client; None for no limit.
    """

    uplink: Mapping[str, float] = field(default_factory=dict)
    downlink: float | None = None
    _overhead: dict[str, float] = field(default_factory=dict)
    _begun: float = -np.inf

    def add(self, record: Mapping[str, Any]) -> None:
        """Take note of what an iteration has taken besides its messages (a server's record)."""
        for name, metrics in record["answers"].items():
            self._learn(name, metrics.get("uplink_cost"), metrics.get("uplink_bytes", 0.0))
        self._learn("", record.get("downlink_cost"), record.get("downlink_bytes", 0.0))

    def _learn(self, name: str, cost: float | None, nbytes: float) -> None:
        if cost is not None:
            before = self._overhead.get(name, _FIRST)
            found = min(max(0.0, cost - nbytes), 4 * before)  # a connection that is made again is rare
            self._overhead[name] = before + _SMOOTHING * (found - before)

    @property
    def seconds(self) -> float:
        """The least time between the beginnings of two iterations."""
        rates = dict(self.uplink) | ({} if self.downlink is None else {"": self.downlink})
        least = [MARGIN * self._overhead.get(name, _FIRST) / rate for name, rate in rates.items()]
        return max(least, default=0.0)

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Wait until the next iteration may begin; `stopped()` ends the wait."""
        while (left := self._begun + self.seconds - time.monotonic()) > 0 and not stopped():
            time.sleep(min(left, _STEP))
        self._begun = time.monotonic()


def pace_of(budgets: Mapping[str, Any], costs: Mapping[str, Any], names: Sequence[str]) -> Pace:
    """Return the pace that budgets allow: those in bytes for a time, of costs that count the link.

    Args:
        budgets: by knob, with `limits`, `members`, `per` and `seconds`; None for no limit.
        costs: by knob.
        names: the clients, in the order of their limits.
    """
    up = _rates(budgets.get("uplink"), costs.get("uplink"), len(names))
    down = float(_rates(budgets.get("downlink"), costs.get("downlink"), 1)[0])
    limited = {name: float(rate) for name, rate in zip(names, up, strict=True) if np.isfinite(rate)}
    return Pace(limited, down if np.isfinite(down) else None)


def _rates(budget: Any, cost: Any, entities: int) -> FloatArray:
    """Return the bytes a second that each may spend, (N,); infinite where the clock sets no limit."""
    if getattr(budget, "per", "") != "time" or getattr(cost, "count", "") != "link":
        return np.full(entities, np.inf)
    rates = np.asarray(budget.limits, dtype=float) / budget.seconds
    if budget.members is not None:  # shared: an even part of it
        rates = (rates / np.bincount(budget.members, minlength=rates.size))[budget.members]
    return np.broadcast_to(rates, (entities,))
