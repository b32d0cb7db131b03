"""The clock of a run: seconds since it began, by which rates ("50 MB / month") and traces go.

A simulation has a virtual clock or none, a deployment that of the wall.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flexfl.state import State


class Clock(Protocol):
    """Tells how long a run has lasted."""

    @property
    def seconds(self) -> float:
        """Seconds since the run began; NaN without a clock."""
        ...


class NoClock:
    """The clock of a run in which iterations take no time."""

    seconds = math.nan


class WallClock:
    """Real time since the run began, also over restarts of the process; never runs backwards.

    Within a process it goes by the monotonic clock, which nobody can set. What passed between two processes
    is known by the wall's clock only; if that was set back meanwhile, no time has passed.

    Args:
        monotonic: seconds of a clock that nobody can set.
        wall: seconds of the clock that outlives processes.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._before, self._start = 0.0, monotonic()

    @property
    def seconds(self) -> float:
        return self._before + self._monotonic() - self._start

    def state(self) -> State:
        return {"clock": np.array([self.seconds, self._wall()])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        seconds, stopped = map(float, state["clock"])
        self._before = seconds + max(0.0, self._wall() - stopped)
        self._start = self._monotonic()
