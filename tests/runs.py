"""Run directories made by hand, for what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from flexfl.results import Run
from flexfl.results.columns import PER_CLIENT, PER_ITERATION
from flexfl.results.run import summarise
from flexfl.results.store import MetricStore

CLIENTS = 4
BUDGETS = {"compute": 0.25, "uplink": 0.01, "downlink": 0.02}


def write_run(
    directory: Path,
    *,
    seed: int = 1,
    iterations: int = 20,
    evaluations: Mapping[int, Mapping[str, float | None]] | None = None,
    budget: Mapping[str, Any] = BUDGETS,
    control: Mapping[str, Any] | None = None,
    cost: float = 0.1,
    charged: float | None = None,
    queues: bool = True,
    finished: bool = True,
    train: Mapping[str, Any] | None = None,
    pace: float = np.nan,
    units: Mapping[str, str] | None = None,
) -> Path:
    """A run whose every per-client metric is `cost` times (0, 1, 2, 3) in every iteration.

    What was charged for computing is `charged` times that, by default the same. An iteration takes `pace`
    seconds by the run's clock, by default there is none. `units` are those of costs.
    """
    directory.mkdir(parents=True)
    spec = {
        "data": {"name": "fashion-mini", "clients": CLIENTS},
        "train": {"iterations": 20, "seed": seed} | dict(train or {}),
        "budget": dict(budget),
        "control": {"policy": "online"} | dict(control or {}),
    }
    (directory / "spec.toml").write_text(tomli_w.dumps(spec), encoding="utf-8")
    store = MetricStore(directory / "metrics.sqlite", create=True)
    store.set_meta("units", json.dumps(dict(units or {})))
    by_client = cost * np.arange(CLIENTS)
    for iteration in range(iterations):
        record: dict[str, Any] = dict.fromkeys(PER_ITERATION, cost) | dict.fromkeys(PER_CLIENT, by_client)
        record |= {"iteration": iteration, "computed": np.ones(CLIENTS), "clock": pace * (iteration + 1)}
        if charged is not None:
            record["compute_cost"] = charged * np.arange(CLIENTS)
        if not queues:
            record |= dict.fromkeys(["compute_queue", "uplink_queue"], np.full(CLIENTS, np.nan))
            record["downlink_queue"] = np.nan
        store.add_iteration(record)
    if evaluations is None:
        evaluations = {
            0: {"train_loss": 2.0 + seed, "test_accuracy": 0.1, "seconds": 0.0},
            iterations: {"train_loss": 1.0 + seed, "test_accuracy": 0.5 + seed / 10, "seconds": 7.0},
        }
    for iteration, values in evaluations.items():
        store.add_evaluation(iteration, values)
    store.set_meta("units", json.dumps(dict(units or {})))
    store.commit()
    store.close()
    if finished:
        summary = summarise(Run(directory), seconds=10.0 * seed)
        (directory / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return directory
