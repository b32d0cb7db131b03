"""Observers: what looks on at a run, simulated or deployed; and how far the run is.

The run directory, the terminal line and trackers are observers. An observer of one's own subclasses
`Observer` and overrides what it needs:

    class Best(Observer):
        def evaluated(self, progress, metrics):
            self.best = max(getattr(self, "best", 0.0), metrics["test_accuracy"] or 0.0)
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flexfl.parameters import KNOBS
from flexfl.results.forms import Form
from flexfl.results.run import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RunInfo:
    """What a run is, passed to observers at its beginning.

    Attributes:
        path: the run directory; None for a run that leaves none behind.
        clients: N.
        dim: D.
        iterations: T, how many the run will have in all.
        start: the iteration that it begins or resumes with.
        spec: the resolved settings, as TOML knows them.
        budgets: the mean budget of each knob for an iteration; None for no limit, or one by the clock.
        notes: what the run does that its settings do not show.
        units: what the costs of each knob are counted in; no entry for abstract costs.
    """

    path: Path | None
    clients: int
    dim: int
    iterations: int
    start: int = 0
    spec: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, float | None] = field(default_factory=dict)
    notes: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)


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
    """A sequence of observers as one, called in their order."""

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


@dataclass
class Progress:
    """Passed to observers; covers the whole run so far.

    `budgets` are for an iteration; those that go by the clock are set by `rates`, (amount, seconds), as
    iterations are timed, and so are `totals` of a run that ends after a `duration`. `units` are what costs
    are counted in, `forms` how people see them, by knob.
    """

    total: int
    iteration: int = 0
    started_at: int = 0
    evaluation: Mapping[str, float | None] = field(default_factory=dict)
    budgets: Mapping[str, float | None] = field(default_factory=dict)
    seconds_before: float = 0.0
    units: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    clock: float = float("nan")
    totals: Mapping[str, float] = field(default_factory=dict)
    duration: float = float("inf")
    forms: Mapping[str, Form] = field(default_factory=dict)
    _spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KNOBS, 0.0))
    _clock: float = field(default_factory=time.perf_counter)

    @property
    def average_cost(self) -> dict[str, float]:
        """Average cost of each knob, over clients and iterations."""
        return {knob: spent / max(1, self.iteration) for knob, spent in self._spent.items()}

    @property
    def seconds(self) -> float:
        """Seconds spent training, including those before the run was resumed."""
        return self.seconds_before + time.perf_counter() - self._clock

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the run ends; None before the first iteration."""
        done = self.iteration - self.started_at
        if not done:
            return None
        return (time.perf_counter() - self._clock) / done * (self.expected - self.iteration)

    @property
    def expected(self) -> float:
        """How many iterations the run will have: T, or as many as fit in its duration at the pace so far."""
        if not self.iteration or not np.isfinite(self.duration) or not self.clock > 0:
            return self.total
        return max(self.iteration, min(self.total, self.iteration * self.duration / self.clock))

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the record of one iteration."""
        self.iteration += 1
        self._spent["compute"] += float(np.mean(record["compute_spent"]))
        self._spent["uplink"] += float(np.mean(record["uplink_cost"]))
        self._spent["downlink"] += record["downlink_cost"]
        self._set_clock(record.get("clock", self.clock))

    def _set_clock(self, seconds: float) -> None:
        self.clock = float(seconds)
        if self.rates and np.isfinite(self.clock) and self.iteration:
            pace = self.clock / self.iteration
            by_clock = {knob: amount * pace / window for knob, (amount, window) in self.rates.items()}
            self.budgets = {**self.budgets, **by_clock}
        shared_out = {knob: total / self.expected for knob, total in self.totals.items() if self.iteration}
        self.budgets = {**self.budgets, **shared_out}

    def resume(self, run: Run, iteration: int, seconds: float) -> None:
        """Continue from what an earlier process has done.

        Args:
            run: The run so far.
            iteration: The iteration to continue from.
            seconds: Seconds that training has taken so far.
        """
        self.iteration = self.started_at = iteration
        self.seconds_before = seconds
        for knob in KNOBS:
            average = run.average_cost(knob)
            self._spent[knob] = float(average[-1]) * len(average) if len(average) else 0.0
        if len(clock := run.iterations["clock"]):
            self._set_clock(clock[-1])
        if len(run.evaluations["iteration"]):
            last = {name: float(column[-1]) for name, column in run.evaluations.items()}
            self.evaluation = {name: None if np.isnan(value) else value for name, value in last.items()}


@dataclass(frozen=True)
class Live:
    """A snapshot of the progress for other processes, stored in a small file that is replaced atomically."""

    total: int
    iteration: int
    evaluation: Mapping[str, float | None]
    budgets: Mapping[str, float | None]
    average_cost: Mapping[str, float]
    seconds_left: float | None
    more: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, Form] = field(default_factory=dict)

    @classmethod
    def of(cls, progress: Progress, **more: Any) -> Live:
        """Return a snapshot of `progress`, with additional fields `more`."""
        metrics = (progress.evaluation, progress.budgets, progress.average_cost, progress.seconds_left)
        return cls(progress.total, progress.iteration, *metrics, more, progress.units, progress.forms)

    @classmethod
    def failed(cls, error: str) -> Live:
        """Return the status of a run that failed before its first iteration."""
        return cls(0, 0, {}, {}, {}, None, {"state": "failed", "error": error})

    @property
    def ended(self) -> bool:
        """Whether the run has finished, failed or been stopped."""
        return self.more.get("state") in ("finished", "failed", "stopped")

    def write(self, path: Path) -> None:
        """Replace the status file at `path`."""
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Live | None:
        """Read a status file; return None if there is none yet."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"))
        except OSError:
            return None

    @classmethod
    def parse(cls, text: str) -> Live | None:
        """Parse a status; return None if the text is not a status."""
        try:
            fields = json.loads(text)
            forms = {knob: Form(**form) for knob, form in fields.pop("forms", {}).items()}
            return cls(**fields, forms=forms)
        except (ValueError, TypeError, AttributeError):
            return None
