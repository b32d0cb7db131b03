"""Members of a user's own, named in specs as "deploy.own_members:…"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from flexfl.costs import Affine
from flexfl.results.observer import Observer, RunInfo
from flexfl.state import State
from flexfl.streams import Moment


@dataclass
class MarkovChannel:
    """A channel that is good or bad for a while: a cost with a memory, one for each entity."""

    levels: list[float]
    """γ·d of the good and of the bad channel."""
    stay: Any = 0.8
    """One for all, or one for each client."""
    bad: Any = field(default=None, init=False)

    def at(self, moment: Moment) -> Affine:
        before = np.zeros(moment.shape, dtype=bool) if self.bad is None else self.bad
        changes = moment.uniform("markov") > np.asarray(moment.pick(self.stay))
        self.bad = before ^ changes
        return Affine(np.asarray(0.01), np.where(self.bad, *self.levels[::-1]) / moment.dim)

    def state(self) -> State:
        return {} if self.bad is None else {"bad": np.asarray(self.bad)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.bad = state.get("bad")


@dataclass
class Tariff:
    """A price that goes round through a list, as long as the user likes; each client begins elsewhere."""

    prices: list[float]
    seen: ClassVar[dict[int, list[float]]] = {}
    """What arrived at each client."""

    def at(self, moment: Moment) -> Affine:
        places = moment.entities.numbers
        if not moment.entities.everyone:
            self.seen[int(places)] = self.prices
        price = np.asarray(self.prices)[(moment.iteration + places) % len(self.prices)]
        return Affine(np.asarray(0.01), np.asarray(price / moment.dim))


class Souring:
    """A cost of client 1 that becomes nonsense."""

    def at(self, moment: Moment) -> Affine:
        wrong = (moment.entities.numbers == 1) & (moment.iteration >= 5)
        return Affine(np.asarray(0.01), np.where(wrong, -1.0, 0.1 / moment.dim))


class Watcher(Observer):
    """Takes down all that it is told."""

    told: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self) -> None:
        self.told.clear()

    def begin(self, run: RunInfo) -> None:
        self.told.append(("begin", run.start, run.iterations, run.clients, run.dim, run.path is not None))

    def iteration(self, progress: Any, record: Any) -> None:
        self.told.append(("iteration", int(record["iteration"]), progress.iteration))

    def evaluated(self, progress: Any, metrics: Any) -> None:
        self.told.append(("evaluated", progress.iteration))

    def checkpoint(self, progress: Any, state: Any) -> None:
        self.told.append(("checkpoint", progress.iteration, sorted(state)))

    def end(self, progress: Any, summary: Any) -> None:
        self.told.append(("end", progress.iteration, summary["iterations"]))
