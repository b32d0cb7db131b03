"""The loop of a run: evaluate, step, notify the observers, save."""

from __future__ import annotations

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
class Schedule:
    """How long a run is, and what happens how often.

    Attributes:
        iterations: T.
        evaluate_every: iterations between two evaluations.
        checkpoint_every: iterations between two checkpoints.
    """

    iterations: int
    evaluate_every: int
    checkpoint_every: int


def train(
    engine: Engine,
    evaluate: Evaluate,
    schedule: Schedule,
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

    while engine.iteration < schedule.iterations:
        if engine.iteration % schedule.evaluate_every == 0:
            evaluation()
        record = engine.step()
        progress.add(record)
        observer.iteration(progress, record)
        if stop.is_set():
            observer.checkpoint(progress, engine.state())
            raise RunInterruptedError(f"stopped after iteration {engine.iteration} of {progress.total}")
        if engine.iteration % schedule.checkpoint_every == 0 and engine.iteration < schedule.iterations:
            observer.checkpoint(progress, engine.state())
    observer.checkpoint(progress, engine.state())
    evaluation()
