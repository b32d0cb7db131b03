"""The loop of a run: evaluate, step, notify the observers, save."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flexfl.errors import FlexFLError
from flexfl.results.observer import Observer, Progress
from flexfl.sim.engine import Engine

Evaluate = Callable[[], Mapping[str, float | None]]


class RunInterruptedError(FlexFLError):
    """The run was asked to stop; it can be resumed from where it is."""


@dataclass(frozen=True)
class Extent:
    """How long a run is, and what happens how often.

    Attributes:
        iterations: T.
        evaluate_every: iterations between two evaluations.
        checkpoint_every: iterations between two checkpoints.
        duration: seconds by the clock after which the run ends all the same.
    """

    iterations: int
    evaluate_every: int
    checkpoint_every: int
    duration: float = math.inf

    def is_over(self, engine: Engine) -> bool:
        """Return whether the run has come to its end."""
        return engine.iteration >= self.iterations or engine.seconds >= self.duration


def train(
    engine: Engine,
    evaluate: Evaluate,
    extent: Extent,
    progress: Progress,
    observer: Observer,
    stop: threading.Event,
) -> None:
    """Run the engine's remaining iterations, and evaluate the model at the end.

    Raises:
        RunInterruptedError: `stop` was set; the observer was given a checkpoint.
    """

    def evaluation() -> None:
        progress.evaluation = evaluate()
        observer.evaluated(progress, progress.evaluation)

    while not extent.is_over(engine):
        if engine.iteration % extent.evaluate_every == 0:
            evaluation()
        record = engine.step()
        progress.add(record)
        observer.iteration(progress, record)
        if stop.is_set():
            observer.checkpoint(progress, engine.state())
            raise RunInterruptedError(f"stopped after iteration {engine.iteration} of {progress.total}")
        if engine.iteration % extent.checkpoint_every == 0 and not extent.is_over(engine):
            observer.checkpoint(progress, engine.state())
    observer.checkpoint(progress, engine.state())
    evaluation()
