"""Observers: what looks on at a run, simulated or deployed, and is told what happens.

The run directory, the terminal line and trackers are observers. An observer of one's own subclasses
`Observer` and overrides what it needs:

    class Best(Observer):
        def evaluated(self, progress, metrics):
            self.best = max(getattr(self, "best", 0.0), metrics["test_accuracy"] or 0.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flexfl.results.progress import Progress


@dataclass(frozen=True)
class RunInfo:
    """What a run is, told at its beginning.

    Attributes:
        path: the run directory; None for a run that leaves none behind.
        clients: N.
        dim: D.
        iterations: T, how many the run will have in all.
        start: the iteration that it begins or resumes with.
        spec: the resolved settings, as TOML knows them.
        budgets: the mean budget of each knob; None for no limit.
    """

    path: Path | None
    clients: int
    dim: int
    iterations: int
    start: int = 0
    spec: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, float | None] = field(default_factory=dict)


class Observer:
    """Override what you need; by default nothing happens.

    An exception in an observer ends the run, which can be resumed from its last checkpoint.
    """

    def begin(self, run: RunInfo) -> None:
        """The run begins, or is resumed."""

    def iteration(self, progress: Progress, record: Mapping[str, Any]) -> None:
        """An iteration is over; `record` holds what `results.columns` names, arrays (N,) by client."""

    def evaluated(self, progress: Progress, metrics: Mapping[str, float | None]) -> None:
        """The model that iteration `progress.iteration` starts from was evaluated."""

    def checkpoint(self, progress: Progress, state: Mapping[str, NDArray[Any]]) -> None:
        """The state after `progress.iteration` iterations is about to be forgotten; keep it if you want."""

    def end(self, progress: Progress, summary: Mapping[str, Any]) -> None:
        """The run is finished."""


@dataclass(frozen=True)
class Observers(Observer):
    """Several observers as one, told in their order."""

    members: Sequence[Observer] = ()

    def begin(self, run: RunInfo) -> None:
        for member in self.members:
            member.begin(run)

    def iteration(self, progress: Progress, record: Mapping[str, Any]) -> None:
        for member in self.members:
            member.iteration(progress, record)

    def evaluated(self, progress: Progress, metrics: Mapping[str, float | None]) -> None:
        for member in self.members:
            member.evaluated(progress, metrics)

    def checkpoint(self, progress: Progress, state: Mapping[str, NDArray[Any]]) -> None:
        for member in self.members:
            member.checkpoint(progress, state)

    def end(self, progress: Progress, summary: Mapping[str, Any]) -> None:
        for member in self.members:
            member.end(progress, summary)
