"""How far a run has come, for a progress line or a notebook."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.parameters import KNOBS
from flexfl.results.run import Run


@dataclass
class Progress:
    """Handed to `on_progress` after every iteration; numbers are those of the whole run so far."""

    total: int
    iteration: int = 0
    started_at: int = 0
    evaluation: Mapping[str, float | None] = field(default_factory=dict)
    budgets: Mapping[str, float | None] = field(default_factory=dict)
    seconds_before: float = 0.0
    _spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KNOBS, 0.0))
    _clock: float = field(default_factory=time.perf_counter)

    @property
    def average_cost(self) -> dict[str, float]:
        """What each knob cost on average, over clients and iterations."""
        return {knob: spent / max(1, self.iteration) for knob, spent in self._spent.items()}

    @property
    def seconds(self) -> float:
        """Time in training, over all parts of a run that was resumed."""
        return self.seconds_before + time.perf_counter() - self._clock

    @property
    def seconds_left(self) -> float | None:
        done = self.iteration - self.started_at
        if not done:
            return None
        return (time.perf_counter() - self._clock) / done * (self.total - self.iteration)

    def add(self, record: Mapping[str, Any]) -> None:
        self.iteration += 1
        self._spent["compute"] += float(np.mean(record["compute_spent"]))
        self._spent["uplink"] += float(np.mean(record["uplink_cost"]))
        self._spent["downlink"] += record["downlink_cost"]

    def resume(self, run: Run, iteration: int, seconds: float) -> None:
        """Take over what an earlier process had done."""
        self.iteration = self.started_at = iteration
        self.seconds_before = seconds
        for knob in KNOBS:
            average = run.average_cost(knob)
            self._spent[knob] = float(average[-1]) * len(average) if len(average) else 0.0
        if len(run.evaluations["iteration"]):
            last = {name: float(column[-1]) for name, column in run.evaluations.items()}
            self.evaluation = {name: None if np.isnan(value) else value for name, value in last.items()}


@dataclass(frozen=True)
class Live:
    """The same for those who look on from another process: a small file that is replaced as a whole."""

    total: int
    iteration: int
    evaluation: Mapping[str, float | None]
    budgets: Mapping[str, float | None]
    average_cost: Mapping[str, float]
    seconds_left: float | None
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, progress: Progress, **more: Any) -> Live:
        told = (progress.evaluation, progress.budgets, progress.average_cost, progress.seconds_left)
        return cls(progress.total, progress.iteration, *told, more)

    @classmethod
    def failed(cls, error: str) -> Live:
        return cls(0, 0, {}, {}, {}, None, {"state": "failed", "error": error})

    @property
    def ended(self) -> bool:
        return self.more.get("state") in ("finished", "failed", "stopped")

    def write(self, path: Path) -> None:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(vars(self)), encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Live | None:
        """None where nothing is told yet."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"))
        except OSError:
            return None

    @classmethod
    def parse(cls, text: str) -> Live | None:
        """None for what is none."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None


OnProgress = Callable[[Progress], None]
