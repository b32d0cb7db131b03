"""What the server and a client of a run need, as plain objects; `deploy.plan` builds them from a spec."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flexfl.control.setup import Setup
from flexfl.deploy.learner import Learner
from flexfl.evaluate import Evaluator
from flexfl.learning_rate import LearningRate
from flexfl.models.flat import FlatModel
from flexfl.results.forms import Form
from flexfl.results.observer import Observer


@dataclass(frozen=True, eq=False)
class ClientJob:
    """One client's part of a run.

    Attributes:
        run: the ID of the run.
        place: which of the clients it is, from 0.
        clients: N.
        setup: policy, costs, compressors and budgets of all clients; it picks its own.
        learner: its network and samples.
        rate: the learning rate.
        average: form the averaged model, too.
        dtype: of the parameters.
        ledger: keep the sum of its steps, too.
    """

    run: str
    place: int
    clients: int
    setup: Setup
    learner: Learner
    rate: LearningRate
    average: bool
    dtype: str
    ledger: bool


@dataclass(frozen=True, eq=False)
class ServerJob:
    """The server's part of a run.

    Attributes:
        name: of the run, and of its directory.
        roster: the clients and their weights; the order gives each its place.
        resume: continue the run of that name.
        present: the clients that the start waits for.
        spec_toml: the settings, to be sent to clients and stored with the run.
        spec: the same as plain data.
        setup: policy, costs, compressors and budgets.
        model: the network, with x₀ as its parameters.
        rate: the learning rate.
        average: form the averaged model, too.
        evaluate_test: evaluates the network on the test samples; None without test samples.
        iterations: T.
        evaluate_every: iterations between two evaluations.
        deadline: seconds that an iteration waits for answers.
        wait: seconds that the start waits for clients.
        latest: the age in iterations beyond which an update is refused; None to accept any.
        by_client: record each client's numbers, too.
        budgets, rates, units, forms, totals, duration: of the run, as `results.observer.Progress` has them.
        notes: what the run does that its settings do not show.
        observers: the trackers of the spec.
    """

    name: str
    roster: dict[str, float]
    resume: bool
    present: Sequence[str]
    spec_toml: str
    spec: Mapping[str, Any]
    setup: Setup
    model: FlatModel
    rate: LearningRate
    average: bool
    evaluate_test: Evaluator | None
    iterations: int
    evaluate_every: int
    deadline: float
    wait: float
    latest: int | None
    by_client: bool
    budgets: Mapping[str, float | None]
    rates: Mapping[str, tuple[float, float]]
    units: Mapping[str, str]
    forms: Mapping[str, Form]
    notes: Sequence[str]
    observers: Sequence[Observer] = ()
    totals: Mapping[str, float] = field(default_factory=dict)
    duration: float = math.inf
