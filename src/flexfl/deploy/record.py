"""The record of a deployment: what its server has closed, reported to observers as a simulation reports it.

The server's own state is the truth: the record of an iteration lies there until the run directory holds it.
Observers see every iteration and evaluation in order, each once; after a crash, those since the last
`flush` (a second at most) once more. The last evaluation and the end of a run are reported again if a
finished run is resumed. An observer that must not count twice looks at `progress.iteration`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flexfl.deploy.jobs import ServerJob
from flexfl.deploy.protocol import Server
from flexfl.parameters import KNOBS
from flexfl.results.accounts import worst
from flexfl.results.columns import PER_CLIENT
from flexfl.results.directory import DirectoryWriter, RunDirectory
from flexfl.results.observer import Observer, Observers, Progress, RunInfo
from flexfl.results.run import Run

_UNKNOWN = {"compute_prob", "compute_queue", "uplink_queue", "uplink_objective"}
"""What is not known of a client that did not answer; it spends and sends nothing."""


class Record:
    """Notifies observers, the run directory first, of what the server has done.

    Args:
        job: of the server.
        directory: of the run.
        server: whose records are reported.
        observers: notified besides the directory and the trackers of the spec.

    Attributes:
        progress: of the run.
    """

    def __init__(
        self, job: ServerJob, directory: RunDirectory, server: Server, observers: Sequence[Observer] = ()
    ) -> None:
        self._job, self._directory, self._server = job, directory, server
        self._writer = DirectoryWriter(directory, job.by_client, commit_every=math.inf)
        self._observers = Observers([self._writer, *job.observers, *observers])
        names = ("budgets", "rates", "units", "forms", "totals", "duration")
        terms: dict[str, Any] = {name: getattr(job, name) for name in names}
        self.progress = Progress(job.iterations, **terms)
        self._begun = False

    def begin(self) -> None:
        """Continue from what directory and server hold; nothing is written before."""
        server, job = self._server, self._job
        before = Run(self._directory.path)
        # What the directory holds was reported to all observers before it was committed.
        done = min(len(before.iterations["iteration"]), server.iteration)
        for note in job.notes:
            self._directory.note(note)
        self._directory.rewind(done)
        server.forget(done)
        before = Run(self._directory.path)
        self.progress.resume(before, done, _seconds(before))
        self._observers.begin(
            RunInfo(
                self._directory.path,
                clients=len(server.roster),
                dim=len(server.params),
                iterations=job.iterations,
                start=done,
                spec=job.spec,
                budgets=job.budgets,
                notes=job.notes,
                units=job.units,
            )
        )
        for number in sorted(server.records):
            self.add(server.records[number])
        self._begun = True

    def add(self, record: Mapping[str, Any]) -> None:
        """Tell an iteration that the server has closed, and the evaluation of the model it started from."""
        if evaluation := record.get("evaluation"):
            self.evaluated(evaluation)
        row = as_row(record, list(self._server.roster))
        self.progress.add(row)
        self._observers.iteration(self.progress, row)

    def evaluated(self, evaluation: Mapping[str, float | None]) -> None:
        """Tell an evaluation of the model that iteration `progress.iteration` starts from."""
        self.progress.evaluation = dict(evaluation)
        self._observers.evaluated(self.progress, evaluation)

    def flush(self) -> None:
        """Write to the disk what was reported; the server may forget it then."""
        if self._begun:
            self._writer.commit()
            self._server.forget(self._server.iteration)

    def worst(self) -> dict[str, Any]:
        """Return for each knob with a budget who is worst off so far (`results.accounts.worst`)."""
        done, names = self.progress.iteration, list(self._server.roster)
        totals, budget = self._directory.store.totals(done), self._job.spec.get("budget", {})
        pace = self.progress.clock / max(1, done)
        found = {
            knob: worst(totals, done, knob, budget.get(knob), names, pace, round(self.progress.expected))
            for knob in KNOBS
        }
        return {knob: entry for knob, entry in found.items() if entry is not None}

    def finish(self, evaluation: Mapping[str, float | None], **more: Any) -> dict[str, Any]:
        """Tell the final state, its evaluation and the end of the run.

        Args:
            evaluation: of the trained model.
            more: what the summary has besides.

        Returns:
            The summary.
        """
        server = self._server
        state = {"params": server.params, "server_residual": server.residual}
        state |= {} if server.average is None else {"average.params": server.average}
        self._observers.checkpoint(self.progress, state)
        self.evaluated(evaluation)
        summary = self._writer.summarise(self.progress, **more)
        self._observers.end(self.progress, summary)
        self.flush()
        return summary


def as_row(record: Mapping[str, Any], roster: list[str]) -> dict[str, Any]:
    """Return a server's record by the names of `results.columns`, clients in the order of the roster."""
    answers = record["answers"]
    row: dict[str, Any] = {name: value for name, value in record.items() if name.startswith("downlink_")}
    row.setdefault("downlink_queue", float("nan"))
    for name in PER_CLIENT:
        absent = float("nan") if name in _UNKNOWN else 0.0
        row[name] = np.array([answers.get(client, {}).get(name, absent) for client in roster])
    row["compute_objective"] = 1.0 / row["compute_prob"]
    row["computed"] = np.array([bool(answers.get(client, {}).get("computed", 0.0)) for client in roster])
    losses = [metrics["batch_loss"] for metrics in answers.values() if "batch_loss" in metrics]
    row |= {
        "iteration": record["iteration"],
        "clock": record.get("clock", float("nan")),
        "learning_rate": record.get("learning_rate", float("nan")),
        "senders": int(np.count_nonzero(row["uplink_components"])),
        "batch_loss": float(np.mean(losses)) if losses else float("nan"),
    }
    return row


def mean_evaluation(
    answers: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]
) -> dict[str, float | None]:
    """Return f = Σ w·F, and loss and accuracy over samples, of all clients that reported theirs."""
    reports = {
        name: answer
        for name, answer in answers.items()
        if answer.get("samples", 0.0) > 0 and "train_loss" in answer
    }
    samples = {name: report["samples"] for name, report in reports.items()}
    return {
        "train_loss": _mean(reports, "train_loss", weights),  # (1)
        "sample_loss": _mean(reports, "train_loss", samples),
        "train_accuracy": _mean(reports, "train_accuracy", samples),
    }


def _mean(
    reports: Mapping[str, Mapping[str, float]], metric: str, weights: Mapping[str, float]
) -> float | None:
    """Return the weighted mean of a metric; None unless every report has it."""
    total = sum(weights[name] for name in reports)
    if not total or not all(metric in report for report in reports.values()):
        return None
    return sum(weights[name] * report[metric] for name, report in reports.items()) / total


def _seconds(run: Run) -> float:
    """Return the training time so far, as of the last evaluation."""
    seconds = run.evaluations["seconds"]
    return float(seconds[-1]) if len(seconds) and np.isfinite(seconds[-1]) else 0.0
