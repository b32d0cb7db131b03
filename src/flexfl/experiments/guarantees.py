"""Theorems 2 and 3 and the bound of the price for the knobs of a run, with what was seen of its costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.control import ByKnob, Online, Policy, Scope, Setup
from flexfl.control.online import FLOORS
from flexfl.control.price import CLEAR, default_step
from flexfl.experiments.rehearsal import Knobbed, Trial
from flexfl.streams import Entities
from flexfl.theory import (
    highest_compute_price,
    highest_send_price,
    initial_queue_for,
    inverse_prob_bound,
    offline_optimum,
    offline_probs,
    price_violation_bound,
    violation_bound,
)

ALLOWED = 0.01
"""ν, the violation for which W is reported: this share of the budget."""
FACTORS = (0.1, 1.0, 10.0)
"""So many times the V of the spec, to show what V does."""


@dataclass(frozen=True)
class Violation:
    """Theorem 2 for one knob, for the client (or group) that it allows the most.

    Attributes:
        tradeoff: V.
        initial_queue: W.
        largest: D, of 1/q, ‖b‖² or ‖a‖²: what was seen.
        largest_cost: √(2B), likewise.
        budget: of an iteration.
        bound: by how much the average cost may exceed the budget after T iterations.
        initial_queue_needed: the smallest W with which that would be at most `ALLOWED` of the budget.
        by_tradeoff: for each V of `FACTORS`: (V, the bound).
    """

    tradeoff: float
    initial_queue: float
    largest: float
    largest_cost: float
    budget: float
    bound: float
    initial_queue_needed: float
    by_tradeoff: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Computing:
    """P2.1: how often clients compute, against the best plan that knows all costs.

    Attributes:
        iterations: over which it was looked at.
        prob: q, on average.
        reached: 1/q under the policy, on average.
        optimum: OPT_q, on average over clients.
        bound: of Theorem 3, for the paper's policy.
        worst: p, the largest mean of 1/q in any iteration.
    """

    iterations: int
    prob: float
    reached: float
    optimum: float
    bound: float | None
    worst: float


def policy_of(setup: Setup, knob: str) -> Policy:
    """Return the policy of a knob."""
    return setup.policy.policies[knob] if isinstance(setup.policy, ByKnob) else setup.policy


def scope_of(setup: Setup, knob: str, clients: int) -> Scope:
    """Return what the rule of a knob is made for, without joint budgets."""
    who = Entities.the_server() if knob == "downlink" else Entities.all_clients(clients)
    weight = np.asarray(1.0) if who.server else who.pick(setup.importance)
    return Scope(knob, who, setup.budgets.get(knob), setup.iterations, importance=weight)


def computing_of(policy: Policy, scope: Scope, alone: Knobbed) -> Computing:
    T, inverse = len(alone.probs), 1.0 / alone.probs
    optimum, sizes = _optima(scope, alone)
    bound = None
    limits, members = _queues(scope)
    if isinstance(policy, Online) and np.isfinite(limits).any():
        V, W = (np.asarray(given) for given in (scope.pick(policy.tradeoff, 0.02), _initial(policy, scope)))
        if V.ndim == 0 or len(limits) == len(V):  # of a group whose members have one V each, nothing is known
            # Of m clients that share a queue: the sum of their 1/q is what the drift bounds.
            B = np.maximum(np.max(alone.charged) * members, limits) ** 2 / 2
            per_queue = inverse_prob_bound(optimum, V=V * members, W=W, T=T, B=B)
            bound = float(np.average(np.where(np.isfinite(limits), per_queue, 1.0), weights=sizes))
    there = np.isfinite(inverse)  # not so for who cannot compute
    each = np.where(there, inverse, 0.0).sum(axis=1) / np.maximum(1, there.sum(axis=1))
    return Computing(
        iterations=T,
        prob=float(np.nanmean(alone.probs)),
        reached=float(np.nanmean(inverse)),
        optimum=float(np.average(optimum, weights=sizes)),
        bound=bound,
        worst=float(each.max()),
    )


def _optima(scope: Scope, alone: Knobbed) -> tuple[FloatArray, FloatArray]:
    """Return OPT_q of each queue, and how many clients share it."""
    limits, sizes = _queues(scope)
    N = alone.probs.shape[1]
    members = np.arange(N) if scope.budget is None or scope.budget.members is None else scope.budget.members
    found = np.ones(len(limits))
    for queue in np.flatnonzero(np.isfinite(limits)):
        own = members == queue
        budget = float(limits[queue] / sizes[queue])
        if alone.alphas is not None:
            alpha = alone.alphas[:, own].reshape(-1)
            there = alpha[np.isfinite(alpha)]
            if there.size:
                found[queue] = offline_probs(there, budget * alpha.size / there.size).value
        elif alone.table is not None:
            found[queue] = offline_optimum(
                alone.table[:, own].reshape(-1, len(alone.grid)), alone.grid, budget
            )
    return found, sizes


def _queues(scope: Scope) -> tuple[FloatArray, FloatArray]:
    """Return the budget of each queue, and how many entities share it."""
    if scope.budget is None or scope.budget.members is None:
        limits = np.atleast_1d(scope.limits)
        return limits, np.ones(len(limits))
    members = scope.budget.members
    sizes = np.bincount(members).astype(float)
    limits = np.zeros(len(sizes))
    limits[members] = scope.limits * sizes[members]
    return limits, sizes


def _initial(policy: Online, scope: Scope) -> FloatArray:
    floor = scope.pick(policy.floor, FLOORS)
    return np.asarray(np.maximum(scope.pick(policy.initial_queue, 1.0), floor))


def violations_of(
    setup: Setup, scopes: Mapping[str, Scope], alone: Knobbed, trial: Trial | None, T: int
) -> dict[str, Violation]:
    found = {}
    for knob, scope in scopes.items():
        policy, (limits, members) = policy_of(setup, knob), _queues(scope)
        if not isinstance(policy, Online) or not np.isfinite(limits).any():
            continue
        D, cost = _largest(knob, scope, alone, trial)
        if D is None or cost is None:
            continue
        V = np.broadcast_to(scope.pick(policy.tradeoff, 0.02), np.shape(scope.limits)).max()
        if knob != "compute":
            V = V * np.max(np.square(scope.importance))
        found[knob] = _violation(
            float(V), np.broadcast_to(_initial(policy, scope), limits.shape), limits, members, D, cost, T
        )
    return found


def _violation(
    V: float, W: FloatArray, limits: FloatArray, members: FloatArray, D: float, cost: float, T: int
) -> Violation:
    """Return Theorem 2 for the queue that it allows the most, relative to its budget.

    A queue that m entities share is one whose objective is at most mD, and whose costs are at most m√(2B).
    """
    B = np.maximum(members * cost, np.where(np.isfinite(limits), limits, 0.0)) ** 2 / 2
    bounds = violation_bound(V, W, T, members * D, B)
    worst = int(np.argmax(np.where(np.isfinite(limits), bounds / limits, -1.0)))
    own: dict[str, Any] = {"T": T, "D": float(members[worst] * D), "B": float(B[worst])}
    budget = float(limits[worst])
    rows = tuple((V * f, float(violation_bound(V=V * f, W=W[worst], **own))) for f in FACTORS)
    return Violation(
        tradeoff=V,
        initial_queue=float(W[worst]),
        largest=own["D"],
        largest_cost=float(np.sqrt(2 * B[worst])),
        budget=budget,
        bound=float(bounds[worst]),
        initial_queue_needed=float(initial_queue_for(ALLOWED * budget, V=V, **own)),
        by_tradeoff=rows,
    )


def _largest(
    knob: str, scope: Scope, alone: Knobbed, trial: Trial | None
) -> tuple[float | None, float | None]:
    """Return D and √(2B) as they were seen; None where nothing is known."""
    if knob == "compute":
        D = float(np.nanmax(1.0 / alone.probs))
        if alone.alphas is not None:  # iv) of Assumption 2: λ(1/D) ≤ λ̃
            with np.errstate(invalid="ignore"):
                D = max(
                    D, float(np.nanmax(np.where(np.isfinite(alone.alphas), alone.alphas, 0) / scope.limits))
                )
        return D, float(np.max(alone.charged))
    if trial is None or not trial.watches[knob].energy:
        return None, None
    return trial.watches[knob].energy, trial.largest_cost[knob]


def prices_of(scopes: Mapping[str, Scope], alone: Knobbed, trial: Trial | None, T: int) -> dict[str, float]:
    """Return what the relative violation would be at most under the log price, by knob.

    It begins at α̂/λ̃² for computing, and for sending at 0.99 times no less than ‖b‖² over the cost of all
    components.
    """
    found = {}
    for knob, scope in scopes.items():
        if knob == "compute":
            bounds = _compute_price(scope, alone, T)
        else:
            bounds = None if trial is None else _send_price(scope, trial, T)
        if bounds is not None and np.isfinite(bounds).any():
            found[knob] = float(np.nanmax(bounds))
    return found


def _compute_price(scope: Scope, alone: Knobbed, T: int) -> FloatArray | None:
    """Return the bound of each client with a budget of its own, for λ = αq."""
    if alone.alphas is None or scope.budget is None or scope.budget.members is not None:
        return None
    limited = np.isfinite(scope.limits)
    alphas = np.where(np.isfinite(alone.alphas), alone.alphas, 0.0)[:, limited]
    limits = scope.limits[limited]
    first = np.mean(alphas, axis=0) / limits**2
    first, limits, alphas = first[first > 0], limits[first > 0], alphas[:, first > 0]
    highest = highest_compute_price(first, largest=alphas.max(axis=0), budget=limits, step=default_step(T))
    return price_violation_bound(first, highest, step=default_step(T), iterations=T)


def _send_price(scope: Scope, trial: Trial, T: int) -> FloatArray:
    """Return the bound of each queue that has begun.

    Of m entities that share a budget, the price rises only if their messages cost more than it together,
    and each of these is worth its price: λ·Σφ ≤ mD. It begins with the highest of their prices.
    """
    limits, sizes = _queues(scope)
    watch = trial.watches[scope.knob]
    with np.errstate(divide="ignore", invalid="ignore"):
        each = CLEAR * np.atleast_1d(watch.first_energy / watch.first_whole)
    each = np.where(np.isfinite(each), each, 0.0)
    members = None if scope.budget is None else scope.budget.members
    first = np.zeros(len(limits))
    np.maximum.at(first, np.arange(len(limits)) if members is None else members, each)
    begun = np.isfinite(limits) & (first > 0)
    first, limits, sizes = first[begun], limits[begun], sizes[begun]
    highest = highest_send_price(
        first,
        energy=sizes * watch.energy,
        budget=limits,
        largest=sizes * trial.largest_cost[scope.knob],
        step=default_step(T),
    )
    return price_violation_bound(first, highest, step=default_step(T), iterations=T)
