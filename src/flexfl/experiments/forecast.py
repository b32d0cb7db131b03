"""What a run will cost and how fast it will go, as a trial shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.control import Scope, Setup
from flexfl.experiments.guarantees import policy_of
from flexfl.experiments.rehearsal import Knobbed, Trial


@dataclass(frozen=True)
class Spending:
    """What a knob will cost, for one client on average, or for the server.

    Attributes:
        unit: of the cost; "" for the paper's abstract one.
        budget: of an iteration, on average over clients; None without a limit.
        each: forecast for an iteration.
        total: for the whole run.
    """

    unit: str
    budget: float | None
    each: float
    total: float


@dataclass(frozen=True)
class Pace:
    """How fast it goes.

    Attributes:
        simulated: iterations a second, in a simulation on this machine.
        seconds: of an iteration between machines, as the person says.
        messages: of a client in an iteration, on average.
        bytes_up: of a client in an iteration.
        bytes_down: of the server in an iteration.
    """

    simulated: float | None
    seconds: float | None
    messages: float | None
    bytes_up: float | None
    bytes_down: float | None


def spending_of(setup: Setup, scope: Scope, alone: Knobbed, trial: Trial | None, T: int) -> Spending:
    """Return what a knob will cost: computing by the knob alone, sending by the trial.

    After the trial, sending goes on as in its second half; under a policy that keeps budgets, at the budget
    at most. One that knows the horizon (`uses_horizon`) spends what is left, unless it was far from doing so.
    """
    knob, limits = scope.knob, np.asarray(scope.limits, dtype=float)
    budget = float(np.mean(limits)) if np.isfinite(limits).all() else None
    unit = str(getattr(setup.costs[knob], "unit", ""))
    if knob == "compute":
        each = float(np.mean(alone.charged))
        return Spending(unit, budget, each, each * T)
    if trial is None:
        return Spending(unit, budget, float("nan"), float("nan"))
    spent = trial.spent[knob]
    recent = float(np.mean(spent[trial.iterations // 2 :]))
    policy = policy_of(setup, knob)
    if budget is not None and getattr(policy, "keeps_budgets", True):
        left = (T * budget - float(np.sum(spent))) / max(1, T - trial.iterations)
        follows = getattr(policy, "uses_horizon", False) and recent > budget / 2
        recent = max(0.0, left) if follows else min(recent, budget)
    total = float(np.sum(spent)) + recent * (T - trial.iterations)
    return Spending(unit, budget, total / T, total)


def pace_of(trial: Trial | None, clients: int, seconds: float | None) -> Pace:
    if trial is None:
        return Pace(None, seconds, None, None, None)
    half = slice(trial.iterations // 2, None)
    senders, up, down = (
        float(np.mean(trial.recorded[name][half])) for name in ("senders", "uplink_bytes", "downlink_bytes")
    )
    return Pace(1.0 / trial.seconds, seconds, senders / clients, up, down)
