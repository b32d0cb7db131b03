"""Budgets: what may be spent, and for what; by one knob, or by several decisions together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.costs.base import CostModel
from flexfl.streams import Entities


@dataclass(frozen=True)
class Budget:
    """What the entities of a knob may spend.

    Attributes:
        limits: one number for all, one for each client, or one for each queue of `members`; ∞ is no limit.
        members: the queue of each client, where clients share a budget.
        per: what the limits are for: an average "iteration", the whole "run", or a "time" of `seconds`.
        seconds: of a limit for a time.
        hard: whether it may never be exceeded: the total of the run, or what a window of `seconds` may have.
            By default as the policy has it (`keeps_totals`); a total is always hard.
        unit: of the limits and of the cost (`flexfl.units.COST_UNITS`); "" for abstract costs.
    """

    limits: Any = np.inf
    members: IntArray | None = None
    per: str = "iteration"
    seconds: float = math.nan
    hard: bool | None = None
    unit: str = ""

    def average(self, iterations: int) -> FloatArray:
        """Return the limits for an iteration, of T; NaN for those that go by the clock."""
        limits = np.asarray(self.limits, dtype=np.float64)
        if self.per == "iteration":
            return limits
        return limits / max(1, iterations) if self.per == "run" else np.full(limits.shape, np.nan)


@dataclass(frozen=True, eq=False)
class JointBudget:
    """What several decisions may cost together on average.

    Attributes:
        limits: one for each of its queues, (Q,); ∞ is no limit.
        costs: by knob, what a decision on it costs in this resource: a model, or so many times the knob's
            own cost.
        members: the queue of each client, (N,); −1 for none.
        server: the queue of the server; −1 for none.
        per, seconds, hard, unit: as those of a `Budget`.
        shares: how many decisions share each queue, where that cannot be seen from `members`.
    """

    limits: FloatArray
    costs: Mapping[str, CostModel | float]
    members: IntArray
    server: int = -1
    per: str = "iteration"
    seconds: float = math.nan
    hard: bool | None = None
    unit: str = ""
    shares: FloatArray | None = None

    @property
    def sharing(self) -> FloatArray:
        """How many decisions share each queue in an iteration, (Q,)."""
        if self.shares is not None:
            return self.shares
        clients = np.bincount(self.members[self.members >= 0], minlength=len(self.limits))
        shares = clients * len(self.costs.keys() - {"downlink"})
        if self.server >= 0 and "downlink" in self.costs:
            shares[self.server] += 1
        return np.maximum(1, shares).astype(float)

    def average(self, iterations: int) -> FloatArray:
        """Return the limits for an iteration, of T."""
        return Budget(self.limits, per=self.per, seconds=self.seconds).average(iterations)

    def queue_of(self, who: Entities) -> IntArray:
        """Return the queue of each entity, −1 for none."""
        return np.asarray(self.server) if who.server else np.asarray(self.members[who.numbers])

    @property
    def is_local(self) -> bool:
        """Whether each queue belongs to one client, which can keep it on its own."""
        counts = np.bincount(self.members[self.members >= 0], minlength=1)
        return self.server < 0 and int(counts.max()) <= 1

    def of_client(self, client: int) -> JointBudget:
        """Return the same with the queue of one client alone."""
        alone = np.where(np.arange(len(self.members)) == client, 0, -1)
        queue = int(self.members[client])
        if queue < 0:
            nothing = np.full(0, np.inf)
            return replace(self, limits=nothing, members=np.full_like(alone, -1), server=-1, shares=nothing)
        kept, shares = self.limits[[queue]], self.sharing[[queue]]
        return replace(self, limits=kept, members=alone, server=-1, shares=shares)
