"""The run directory of a deployment: the same as a simulation's, written by the server.

The server's own state is the truth. Records of iterations lie there until they are in the run's metrics,
so after a crash at any moment there is one row for each iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.control.policy import KNOBS
from flexfl.deploy.protocol import Server
from flexfl.results.columns import PER_CLIENT
from flexfl.results.directory import RunDirectory
from flexfl.results.progress import Live, Progress
from flexfl.results.run import Run, mean_budget
from flexfl.spec.schema import Spec

_UNKNOWN = {"compute_queue", "uplink_queue", "compute_objective", "uplink_objective"}
"""What is not known of a client that did not answer; it spends and sends nothing."""


class Record:
    """What a run tells, written down; `flush` makes it last, and `live` tells it to those who look on."""

    def __init__(self, spec: Spec, directory: RunDirectory, server: Server, live: Path) -> None:
        self._spec, self._directory, self._server, self._live = spec, directory, server, live
        budgets = {
            knob: mean_budget(getattr(spec.budget, knob), clients=len(server.roster)) for knob in KNOBS
        }
        self.progress = Progress(spec.train.iterations, budgets=budgets)
        self._begun = False

    def begin(self) -> None:
        """Go on from what the server's state says; before, nothing is written."""
        server = self._server
        self._directory.rewind(min(server.records, default=server.iteration))
        before = Run(self._directory.path)
        self.progress.resume(before, len(before.iterations["iteration"]), _seconds(before))
        for number in sorted(server.records):
            self.add(server.records[number])
        self._begun = True

    def add(self, record: Mapping[str, Any]) -> None:
        """An iteration that the server has closed."""
        row = as_row(record, list(self._server.roster))
        self._directory.store.add_iteration(row)
        self.progress.add(row)
        if evaluation := record.get("evaluation"):
            self.evaluated(int(record["iteration"]), evaluation)

    def evaluated(self, iteration: int, evaluation: Mapping[str, float | None]) -> None:
        """How good the model was that the iteration began with."""
        self.progress.evaluation = dict(evaluation)
        self._directory.store.add_evaluation(iteration, evaluation)

    def flush(self, **more: Any) -> None:
        """Write what there is, and tell those who look on."""
        if self._begun:
            self._directory.store.commit(by_client=self._spec.record.clients)
            self._server.written(self._server.iteration)
        Live.of(self.progress, **more).write(self._live)

    def finish(self, **more: Any) -> dict[str, Any]:
        """The model and the summary."""
        arrays = {"params": self._server.params, "server_residual": self._server.residual}
        self._directory.checkpoint(self._server.iteration, arrays, by_client=self._spec.record.clients)
        self._server.written(self._server.iteration)
        return self._directory.finish(self.progress.seconds, **more)


def as_row(record: Mapping[str, Any], roster: list[str]) -> dict[str, Any]:
    """A server's record as `results.columns` describes it, clients in the order of the roster."""
    answers = record["answers"]
    row: dict[str, Any] = {name: value for name, value in record.items() if name.startswith("downlink_")}
    row.setdefault("downlink_queue", float("nan"))
    for name in PER_CLIENT:
        absent = float("nan") if name in _UNKNOWN else 0.0
        row[name] = np.array([answers.get(client, {}).get(name, absent) for client in roster])
    with np.errstate(divide="ignore"):
        row["compute_objective"] = np.where(row["compute_prob"] > 0, 1.0 / row["compute_prob"], np.nan)
    row["computed"] = np.array([bool(answers.get(client, {}).get("computed", 0.0)) for client in roster])
    losses = [told["batch_loss"] for told in answers.values() if "batch_loss" in told]
    row |= {
        "iteration": record["iteration"],
        "senders": int(np.count_nonzero(row["uplink_components"])),
        "batch_loss": float(np.mean(losses)) if losses else float("nan"),
    }
    return row


def over_all(answers: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    """Training loss and accuracy over the samples of all who told theirs."""
    told = [
        answer for answer in answers.values() if answer.get("samples", 0.0) > 0 and "train_loss" in answer
    ]
    samples = sum(answer["samples"] for answer in told)
    found: dict[str, float | None] = {}
    for name in ("train_loss", "train_accuracy"):
        known = bool(told) and all(name in answer for answer in told)
        found[name] = sum(answer[name] * answer["samples"] for answer in told) / samples if known else None
    return found


def _seconds(run: Run) -> float:
    """Training time so far, as of the last evaluation."""
    seconds = run.evaluations["seconds"]
    return float(seconds[-1]) if len(seconds) and np.isfinite(seconds[-1]) else 0.0
