"""The clock of a run: seconds since it began, by which rates ("50 MB / month") and traces go.

A simulation has a virtual clock or none, a deployment that of the wall.
"""

from __future__ import annotations

import math
from typing import Protocol


class Clock(Protocol):
    """Tells how long a run has lasted."""

    @property
    def seconds(self) -> float:
        """Seconds since the run began; NaN without a clock."""
        ...


class NoClock:
    """The clock of a run in which iterations take no time."""

    seconds = math.nan
