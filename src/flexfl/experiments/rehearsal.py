"""What a plan is made from: some iterations of the run, and the knob of computing alone for all of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flexfl.arrays import FloatArray
from flexfl.control import Policy, Scope, Setup
from flexfl.costs.linear import Linear
from flexfl.parameters import KNOBS
from flexfl.results.columns import CHARGED_COLUMN, SPENT_COLUMN
from flexfl.sim.engine import Engine, Problem
from flexfl.streams import Entities

_MOST_NUMBERS = 4_000_000
"""Costs that are kept at once; a longer run is looked at up to there."""
_GRID = np.linspace(1 / 64, 1.0, 64)
_LOOKS = 8
"""How many x of a trial are kept, for what is measured there afterwards."""

RECORDED = (
    "compute_objective",
    "uplink_objective",
    "downlink_objective",
    "uplink_bytes",
    "downlink_bytes",
    "senders",
)
"""Beside costs, what a trial keeps of each iteration: means over clients."""


@dataclass
class Watch:
    """What the rules of a knob were asked about.

    Attributes:
        energy: the largest ‖b‖² or ‖a‖² before sending.
        first_energy: of each entity, ‖b‖² when it was first above 0; NaN before.
        first_whole: what a message with all components would have cost it then.
    """

    energy: float = 0.0
    first_energy: FloatArray = field(default_factory=lambda: np.asarray(np.nan))
    first_whole: FloatArray = field(default_factory=lambda: np.asarray(np.nan))

    def note(self, cost: Callable[[Any], FloatArray], energy: FloatArray, dim: int) -> None:
        """Take note of what a sending rule is asked."""
        self.energy = max(self.energy, float(np.max(energy, initial=0.0)))
        if np.shape(self.first_energy) != np.shape(energy):
            self.first_energy, self.first_whole = (np.full(np.shape(energy), np.nan) for _ in range(2))
        new = np.isnan(self.first_energy) & (energy > 0)
        if new.any():
            whole = np.broadcast_to(cost(np.full(np.shape(energy), dim)), np.shape(energy))
            self.first_energy = np.where(new, energy, self.first_energy)
            self.first_whole = np.where(new, whole, self.first_whole)


class _Watched:
    """A policy whose sending rules are listened to; else it is the one that it is made of."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.watches: dict[str, Watch] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._policy, name)

    def compute_rule(self, scope: Scope) -> Any:
        return self._policy.compute_rule(scope)

    def send_rule(self, scope: Scope) -> Any:
        rule: Any = self._policy.send_rule(scope)
        watch = self.watches[scope.knob] = Watch()
        decide = rule.decide

        def listened(price: Any, choices: Any, moment: Any) -> Any:
            watch.note(price, choices.energy, moment.dim)
            return decide(price, choices, moment)

        with suppress(AttributeError):  # a rule with slots: nothing is known of its vectors
            rule.decide = listened
        return rule


@dataclass(frozen=True)
class Trial:
    """Some iterations of a run.

    Attributes:
        iterations: how many.
        seconds: of one iteration on this machine, the median.
        recorded: means over clients, (t,), by the names of `RECORDED`.
        spent: by knob, what each iteration cost, on average over clients, (t,).
        charged: by knob, what the queue was charged, likewise.
        largest_cost: by knob, the largest that any entity was charged.
        watches: of uplink and downlink.
        first_pressure: by knob, what each entity first decided against, where that is known.
        last_pressure: by knob, what it decided against last.
        places: (iteration, x), some of them.
    """

    iterations: int
    seconds: float
    recorded: Mapping[str, FloatArray]
    spent: Mapping[str, FloatArray]
    charged: Mapping[str, FloatArray]
    largest_cost: Mapping[str, float]
    watches: Mapping[str, Watch]
    first_pressure: Mapping[str, FloatArray]
    last_pressure: Mapping[str, FloatArray]
    places: tuple[tuple[int, Tensor], ...]


def rehearse(problem: Problem, iterations: int, **options: Any) -> Trial:
    """Run some iterations.

    Args:
        problem: what is trained; its model is left as it was.
        iterations: how many.
        **options: of the engine.
    """
    start, watched = problem.model.params.clone(), _Watched(problem.setup.policy)
    running = Engine(replace(problem, setup=replace(problem.setup, policy=watched)), **options)
    looks = {round(place) for place in np.linspace(0, iterations - 1, _LOOKS)}
    records, seconds, places = [], [], []
    first: dict[str, FloatArray] = {}
    try:
        for t in range(iterations):
            if t in looks:
                places.append((t, torch.from_numpy(np.array(running.params)).to(start)))
            began = time.perf_counter()
            records.append(running.step())
            seconds.append(time.perf_counter() - began)
            _first_pressures(first, records[-1])
    finally:
        running.release()
        problem.model.params.copy_(start)
    return Trial(
        iterations=iterations,
        seconds=median(seconds),
        recorded={name: _mean_of(records, name) for name in RECORDED},
        spent={knob: _mean_of(records, SPENT_COLUMN[knob]) for knob in KNOBS},
        charged={knob: _mean_of(records, CHARGED_COLUMN[knob]) for knob in KNOBS},
        largest_cost={knob: max(float(np.max(r[f"{knob}_cost"])) for r in records) for knob in KNOBS},
        watches=watched.watches,
        first_pressure=first,
        last_pressure={knob: np.asarray(records[-1][f"{knob}_queue"], dtype=float) for knob in KNOBS},
        places=tuple(places),
    )


def _first_pressures(found: dict[str, FloatArray], record: Mapping[str, Any]) -> None:
    for knob in KNOBS:
        now = np.asarray(record[f"{knob}_queue"], dtype=float)
        before = found.get(knob, np.full(now.shape, np.nan))
        found[knob] = np.where(np.isnan(before), now, before)


def _mean_of(records: list[dict[str, Any]], column: str) -> FloatArray:
    name = column.removesuffix("_mean")
    with np.errstate(invalid="ignore"):
        values = [np.asarray(record[name], dtype=float) for record in records]
    return np.array([float(np.mean(v[np.isfinite(v)])) if np.isfinite(v).any() else np.nan for v in values])


@dataclass(frozen=True)
class Knobbed:
    """The knob of computing alone, which needs no gradients.

    Attributes:
        probs: q, (t, N); NaN for who cannot compute.
        charged: λ(q), (t, N).
        alphas: α, (t, N), where λ = α·q; else None.
        table: λ on a grid of q, (t, N, G), where it is not.
        grid: the grid.
    """

    probs: FloatArray
    charged: FloatArray
    alphas: FloatArray | None
    table: FloatArray | None
    grid: FloatArray = field(default_factory=lambda: _GRID)


def compute_alone(setup: Setup, clients: int, dim: int, iterations: int) -> Knobbed:
    """Run the knob of computing for all iterations, or for as many as memory allows."""
    everyone = Entities.all_clients(clients)
    knob, model = setup.knob(everyone, dim), copy.deepcopy(setup.costs["compute"])
    first = model.at(setup.streams.moment("compute", 0, dim, everyone))
    linear = isinstance(first, Linear)
    count = min(iterations, max(1, _MOST_NUMBERS // (clients * (1 if linear else len(_GRID)))))
    probs, charged = np.zeros((count, clients)), np.zeros((count, clients))
    drawn = np.zeros((count, clients) if linear else (count, clients, len(_GRID)))
    for t, cost in enumerate(_costs(setup, everyone, dim, count)):
        decided = knob.decide(t)
        probs[t], charged[t] = decided.prob, decided.charged
        if linear:
            drawn[t] = cost.per_gradient
        else:
            drawn[t] = np.broadcast_to(cost(_GRID[:, None]), (len(_GRID), clients)).T
    return Knobbed(probs, charged, drawn if linear else None, None if linear else drawn)


def _costs(setup: Setup, everyone: Entities, dim: int, count: int) -> Iterator[Any]:
    """Yield the cost of each iteration; the streams give the same as the knob's own model has."""
    model = copy.deepcopy(setup.costs["compute"])
    for t in range(count):
        yield model.at(setup.streams.moment("compute", t, dim, everyone))
