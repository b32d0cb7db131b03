"""The reading side of a run directory, for reports, exports and notebooks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.errors import RunDirectoryError
from flexfl.parameters import KNOBS
from flexfl.results.accounts import account, form_of, limits_of
from flexfl.results.columns import CHARGED_COLUMN, SPENT_COLUMN
from flexfl.results.forms import Form
from flexfl.results.partition import Partition
from flexfl.results.store import MetricStore
from flexfl.units import average

_RECENT = 10
SPEC_FILE, METRICS_FILE, SUMMARY_FILE = "spec.toml", "metrics.sqlite", "summary.json"
PARTITION_FILE = "partition.json"


class Run:
    """The content of a run directory; needs neither torch nor the data.

    Args:
        directory: The run directory.
        until: Read only this many iterations, as if the run had been no longer. An iteration does not
            depend on how many follow, unless the policy plans for the end (`spec.build.plans_for_end`).

    Attributes:
        iterations: One row per iteration, as columns (`results.columns`).
        evaluations: One row per evaluation, as columns.
        totals: Sums over all iterations of what each client was charged and has spent, (N,), by the names
            of `columns.SUMMED`; NaN where they are unknown: in a run that is cut by `until`.
        names: Names of the clients in a deployment; empty in a simulation.
        model: A fingerprint of the network: its parameter names and shapes.
        start: A digest of the parameters it began with.
        notes: Remarks about the run: what its numbers do not show.
        units: What the costs of each knob are counted in; without an entry, the paper's abstract costs.
        objects: What objects passed in Python were, and one's own code; as text by name (`flexfl.identity`).

    Raises:
        RunDirectoryError: The directory holds no run, or the run cannot be read.
    """

    def __init__(self, directory: str | Path, *, until: int | None = None) -> None:
        self.directory = Path(directory)
        self._until = until
        if not (self.directory / SPEC_FILE).is_file():
            raise _no_run(self.directory)
        store = MetricStore(self.directory / METRICS_FILE)
        try:
            self.model = store.meta("model")
            self.start = store.meta("start")
            self.notes: list[str] = json.loads(store.meta("notes") or "[]")
            self.objects: dict[str, str] = json.loads(store.meta("objects") or "{}")
            self.units: dict[str, str] = json.loads(store.meta("units") or "{}")
            self.iterations = _cut(store.iterations(), until)
            self.evaluations = _cut(store.evaluations(), None if until is None else until + 1)
            self.totals = store.totals(len(self.iterations["iteration"]))
            roster = store.meta("roster")
            self.names = tuple(roster.split(", ")) if roster else ()
        finally:
            store.close()

    @cached_property
    def clients(self) -> dict[str, FloatArray]:
        """Metrics of every client, (T, N); empty unless `record.clients` was set."""
        store = MetricStore(self.directory / METRICS_FILE)
        try:
            return _cut(store.clients(), self._until)
        finally:
            store.close()

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The resolved spec, as plain data."""
        spec = read_spec(self.directory)
        if self._is_cut(spec):
            spec["train"]["iterations"] = self._until
        return spec

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """The summary that `flexfl run --json` prints; None while the run is unfinished."""
        if self._is_cut(read_spec(self.directory)):
            reached = len(self.iterations["iteration"]) == self._until
            seconds = self.evaluations["seconds"]
            return summarise(self, seconds=float(seconds[-1])) if reached and len(seconds) else None
        path = self.directory / SUMMARY_FILE
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except (OSError, ValueError) as error:
            raise RunDirectoryError(
                f"{path} cannot be read ({error}); resume=True writes it again"
            ) from error

    def _is_cut(self, spec: Mapping[str, Any]) -> bool:
        return self._until is not None and spec["train"]["iterations"] > self._until

    @cached_property
    def partition(self) -> Partition | None:
        """The partition; None for runs of earlier versions, which did not store it."""
        path = self.directory / PARTITION_FILE
        return Partition.read(path) if path.exists() else None

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.spec["train"]["seed"])

    def average_cost(self, knob: str, *, charged: bool = False) -> FloatArray:
        """Return the average cost of `knob` up to each iteration, over all clients, (T,).

        Args:
            knob: compute, uplink or downlink.
            charged: What the queues were charged (`results.accounts`), instead of what was spent.
        """
        costs = self.iterations[(CHARGED_COLUMN if charged else SPENT_COLUMN)[knob]]
        return np.asarray(np.cumsum(costs) / np.arange(1, len(costs) + 1))

    def account(self, knob: str) -> dict[str, Any]:
        """Return what was spent and charged, the budget, and the worst client (`accounts.account`).

        All are for an iteration. Of a total or a rate there is also what it is for, `per` the "run" or a time
        such as "month", and its `limit` for that, averaged over clients.
        """
        form = self.form(knob)
        given = self.spec.get("budget", {}).get(knob)
        budget, unit = self.budget(knob), self.units.get(knob, "")
        found = account(
            self.iterations,
            self.totals,
            knob,
            budget=budget,
            given=given,
            names=self.names,
            unit=unit,
            pace=self.pace,
            horizon=self.horizon,
        )
        return found if form.is_average else found | {"per": form.per, "limit": form.limit}

    def form(self, knob: str) -> Form:
        """Return how the costs of `knob` are shown: their unit, and what their budget is for."""
        given = self.spec.get("budget", {}).get(knob)
        return form_of(given, int(self.spec["data"]["clients"]), self.units.get(knob, ""))

    def budget(self, knob: str) -> float | None:
        """Return the budget of `knob` for an iteration, averaged over clients.

        None if some client has no limit, or if it goes by a clock that this run does not have.
        """
        given = self.spec.get("budget", {}).get(knob)
        clients = self.spec["data"]["clients"]
        return mean_budget(given, clients=clients, iterations=self.horizon, pace=self.pace)

    @property
    def horizon(self) -> int:
        """How many iterations the run has in all: T, or as many as fit in its duration at the pace so far."""
        train, done = self.spec["train"], len(self.iterations["iteration"])
        planned, duration = int(train["iterations"]), train.get("duration", np.inf)
        if not np.isfinite(duration) or not self.pace > 0:
            return planned
        over = self.iterations["clock"][-1] >= duration
        return done if over else min(planned, max(done, round(duration / self.pace)))

    @property
    def pace(self) -> float:
        """Seconds of an iteration on average, by the run's clock; NaN without one."""
        clock = self.iterations["clock"]
        return float(clock[-1]) / len(clock) if len(clock) else np.nan


def _no_run(directory: Path) -> RunDirectoryError:
    """Return what to say of a folder without a run."""
    if not directory.exists():
        return RunDirectoryError(f"{directory} holds no run: there is no such folder; check the name")
    if not directory.is_dir():
        return RunDirectoryError(f"{directory} holds no run: it is a file; give the folder of a run")
    if inside := runs_below(directory):
        some = ", ".join(map(str, inside[:3])) + (f" and {len(inside) - 3} more" if len(inside) > 3 else "")
        return RunDirectoryError(f"{directory} holds no run itself, but runs in folders; give one: {some}")
    return RunDirectoryError(f"{directory} holds no run ({SPEC_FILE} is missing)")


def runs_below(directory: Path) -> list[Path]:
    """Return the run directories in a folder, at any depth, in order of their names."""
    return sorted(path.parent for path in directory.rglob(SPEC_FILE) if (path.parent / METRICS_FILE).exists())


def _cut(table: dict[str, FloatArray], end: int | None) -> dict[str, FloatArray]:
    """Return the rows of iterations before `end`."""
    kept = slice(None) if end is None else table["iteration"] < end
    return {name: column[kept] for name, column in table.items()}


def read_spec(directory: Path) -> dict[str, Any]:
    """Return the stored spec of a run, as plain data.

    Raises:
        RunDirectoryError: The spec cannot be read.
    """
    path = directory / SPEC_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} cannot be read ({error}); restore it, or start a new run") from error


def flatten(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a spec with dotted names.

    >>> flatten({"train": {"seed": 1}})
    {'train.seed': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def mean_budget(given: Any, *, clients: int, iterations: int = 0, pace: float = np.nan) -> float | None:
    """Return the mean over clients of a budget in a spec, for an iteration.

    Args:
        given: A number or a text, a list, or a shared table.
        clients: N.
        iterations: T, for a total.
        pace: Seconds of an iteration, for a budget that goes by the clock.

    >>> mean_budget([1.0, 3.0], clients=2)
    2.0
    >>> mean_budget({"shared": [{"clients": [0, 1], "limit": 4.0}], "others": 1.0}, clients=4)
    1.5
    """
    if given is None:
        return None
    limits, _ = limits_of(given, clients, lambda amount: average(amount, iterations, pace))
    mean = float(limits.sum()) / clients
    return mean if np.isfinite(mean) else None


def summarise(run: Run, *, seconds: float) -> dict[str, Any]:
    """Return the summary of a finished run, which took `seconds` of training."""
    last = {name: _plain(column[-1]) for name, column in run.evaluations.items() if len(column)}
    per_iteration = run.iterations
    return {
        "iterations": len(per_iteration["iteration"]),
        "seed": run.seed,
        "train_loss": last.get("train_loss"),
        "sample_loss": last.get("sample_loss"),
        "train_accuracy": last.get("train_accuracy"),
        "test_loss": last.get("test_loss"),
        "test_accuracy": last.get("test_accuracy"),
        # A single evaluation jumps by some percent when clients have one class each.
        "recent_test_accuracy": _mean(run.evaluations["test_accuracy"][-_RECENT:]),
        "recent_evaluations": len(run.evaluations["test_accuracy"][-_RECENT:]),
        "average_test_loss": last.get("average_test_loss"),
        "average_test_accuracy": last.get("average_test_accuracy"),
        "learning_rate": _plain(per_iteration["learning_rate"][-1]) if len(per_iteration["clock"]) else None,
        "average_cost": {knob: run.account(knob) for knob in KNOBS},
        "clients": run.spec["data"]["clients"],
        "computed_per_iteration": _mean(per_iteration["computed"]),
        "senders_per_iteration": _mean(per_iteration["senders"]),
        "uplink_bytes": round(float(per_iteration["uplink_bytes_mean"].sum()) * run.spec["data"]["clients"]),
        "downlink_bytes": int(np.sum(per_iteration["downlink_bytes"])),
        "seconds": round(seconds, 3),
        **_timed(run),
        "notes": run.notes,
    }


def _timed(run: Run) -> dict[str, float]:
    """Return how long the run lasted by its clock, and its iterations in an hour; nothing without a clock."""
    if not run.pace > 0:
        return {}
    return {"clock": float(run.iterations["clock"][-1]), "iterations_per_hour": 3600.0 / run.pace}


def _mean(column: FloatArray) -> float | None:
    return _plain(float(np.mean(column))) if len(column) else None


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
