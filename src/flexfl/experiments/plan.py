"""What the theory says of a spec before it is run: `flexfl plan`.

Constants are estimated from the model and the data, the knob of computing is run alone for all iterations,
and a short trial tells how large vectors, messages and residuals get. The rest is `flexfl.theory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flexfl.control import Scope
from flexfl.experiments.constants import Estimates, Probe, estimate_constants
from flexfl.experiments.forecast import Pace, Spending, pace_of, spending_of
from flexfl.experiments.guarantees import (
    Computing,
    Violation,
    computing_of,
    policy_of,
    prices_of,
    scope_of,
    violations_of,
)
from flexfl.experiments.rehearsal import Knobbed, Trial, compute_alone, rehearse
from flexfl.learning_rate import AUTO, nominal
from flexfl.models.flat import own_generator
from flexfl.parameters import KNOBS
from flexfl.sim.engine import Problem
from flexfl.sim.process import default_threads, threads
from flexfl.sim.run import prepared
from flexfl.spec.schema import Spec
from flexfl.theory import convergence_bound, largest_learning_rate


@dataclass(frozen=True)
class Plan:
    """All that `flexfl plan` tells.

    Attributes:
        name: of the spec.
        clients: N.
        parameters: the number of trained parameters.
        iterations: T.
        heaviest: the largest N·w of any client.
        learning_rate: η; the largest that an automatic one can be.
        largest_learning_rate: 1/(4Lp).
        policies: by knob.
        estimates: of the constants.
        convergence: the terms of Theorem 1 at T, by name; residuals are None without a trial.
        residuals: mean ‖r‖² and ‖N·w·e‖² of the second half of the trial.
        computing: how often clients compute.
        violations: Theorem 2 by knob, where the policy is the paper's and there is a budget.
        price: by knob, the relative violation that the log price would have at most.
        spending: by knob.
        trial: iterations of the trial.
        gradients: (iteration, ‖∇f‖²) measured in the trial.
        pace: how fast it goes.
        notes: what to know when reading it.
    """

    name: str
    clients: int
    parameters: int
    iterations: int
    heaviest: float
    learning_rate: float
    largest_learning_rate: float
    policies: Mapping[str, str]
    estimates: Estimates
    convergence: Mapping[str, float | None]
    residuals: tuple[float, float] | None
    computing: Computing
    violations: Mapping[str, Violation]
    price: Mapping[str, float]
    spending: Mapping[str, Spending]
    trial: int
    gradients: tuple[tuple[int, float], ...]
    pace: Pace
    notes: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def make_plan(
    spec: Spec, name: str, *, iterations_to_try: int = 300, seconds_per_iteration: float | None = None
) -> Plan:
    """Return what the theory and a short trial say of a spec.

    Args:
        spec: the settings.
        name: what to call it.
        iterations_to_try: of the trial; 0 for none.
        seconds_per_iteration: how long one takes between machines, where that is known.
    """
    count = spec.engine.threads or default_threads()
    with own_generator():
        with threads(count):
            problem = prepared(spec)
            trial = _tried(problem, spec, iterations_to_try)
        with threads(1):  # many small gradients: more threads would wait for each other
            return plan_of(problem, spec, name, trial, seconds_per_iteration)


def _tried(problem: Problem, spec: Spec, iterations: int) -> Trial | None:
    """Return a trial as the run would be computed; None for no iterations."""
    if not iterations:
        return None
    kernels = None if spec.engine.kernels == "auto" else spec.engine.kernels
    count = min(iterations, spec.train.iterations)
    return rehearse(problem, count, kernels=kernels, gradients=spec.engine.gradients)


def plan_of(problem: Problem, spec: Spec, name: str, trial: Trial | None, pace: float | None) -> Plan:
    """Return the plan of a problem that was built, and perhaps tried."""
    clients, dim, T = problem.data.clients, problem.model.dim, spec.train.iterations
    setup = problem.setup.weighted(problem.weights)
    probe = Probe(
        problem.model,
        problem.loss,
        problem.data,
        problem.weights,
        batch_size=problem.batch_size,
        streams=problem.streams,
    )
    eta = nominal(problem.learning_rate)
    estimates = estimate_constants(probe, learning_rate=eta)
    alone = compute_alone(setup, clients, dim, T)
    scopes = {knob: scope_of(setup, knob, clients) for knob in KNOBS}
    computing = computing_of(policy_of(setup, "compute"), scopes["compute"], alone)
    heaviest = float(clients * np.max(problem.weights))
    residuals = None if trial is None else _residuals(trial, heaviest)
    return Plan(
        name=name,
        clients=clients,
        parameters=dim,
        iterations=T,
        heaviest=heaviest,
        learning_rate=eta,
        largest_learning_rate=_largest_rate(estimates, computing),
        policies={knob: type(policy_of(setup, knob)).__name__ for knob in KNOBS},
        estimates=estimates,
        convergence=_convergence(estimates, eta, T, residuals, computing),
        residuals=residuals,
        computing=computing,
        violations=violations_of(setup, scopes, alone, trial, T),
        price=prices_of(scopes, alone, trial, T),
        spending={knob: spending_of(setup, scopes[knob], alone, trial, T) for knob in KNOBS},
        trial=0 if trial is None else trial.iterations,
        gradients=tuple((t, probe.squared_gradient(x)) for t, x in (trial.places if trial else ())),
        pace=pace_of(trial, clients, pace),
        notes=tuple(_notes(spec, scopes, estimates, alone, trial)),
    )


def _largest_rate(estimates: Estimates, computing: Computing) -> float:
    L = estimates.smoothness.largest
    return float(largest_learning_rate(L, computing.worst)) if L > 0 else float("inf")


def _residuals(trial: Trial, heaviest: float) -> tuple[float, float]:
    """Return mean ‖r‖² and ‖N·w·e‖² of the second half; the latter with the largest weight, at most."""
    half = slice(trial.iterations // 2, None)
    r, e = (trial.recorded[name][half] for name in ("downlink_objective", "uplink_objective"))
    return float(np.mean(r)), heaviest**2 * float(np.mean(e))


def _convergence(
    estimates: Estimates, rate: float, T: int, residuals: tuple[float, float] | None, computing: Computing
) -> dict[str, float | None]:
    r, e = residuals or (float("nan"), float("nan"))
    terms = convergence_bound(
        estimates.constants,
        learning_rate=rate,
        iterations=T,
        server_residual=r,
        client_residual=e,
        inverse_prob=computing.reached,
    )
    return {name: _finite(float(value)) for name, value in (vars(terms) | {"total": terms.total}).items()}


def _notes(
    spec: Spec, scopes: Mapping[str, Scope], estimates: Estimates, alone: Knobbed, trial: Trial | None
) -> list[str]:
    notes, T = [*spec.notes()], spec.train.iterations
    for knob, scope in scopes.items():
        if np.isnan(scope.limits).any():
            notes.append(f"budget.{knob} goes by the clock, and is not part of this plan")
    if spec.budget.joint:
        notes.append(f"joint budgets ({', '.join(spec.budget.joint)}) are not part of this plan")
    if len(alone.probs) < T:
        notes.append(f"computing was looked at for the first {len(alone.probs)} of {T} iterations")
    if trial is None:
        notes.append("without a trial nothing is known of messages and residuals")
    if (kind := spec.train.local["kind"]) != "gradient":
        notes.append(f"Theorem 1 is of one gradient in a computation: for {kind} its terms bound nothing")
    if spec.train.learning_rate == AUTO or spec.train.schedule["kind"] != "constant":
        notes.append("the learning rate changes: Theorem 1 is shown for the largest that it may have")
    if spec.data.augment != "none":
        notes.append("σ² is of samples without augmentation")
    if estimates.loss.mean < 0:
        notes.append("the loss is below 0: Theorem 1 needs its minimum, which is not known")
    return notes


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Return plain data; what is not finite is None, as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return _finite(value) if isinstance(value, float) else value
