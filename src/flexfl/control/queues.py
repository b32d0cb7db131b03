"""Virtual queues: how far spending has run ahead of the budget, equations (16)–(18)."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number


def next_queue(length: Number, spent: Number, budget: Number, floor: Number) -> FloatArray:
    """Q' = max(floor, Q + spent − budget).

    The paper's floor is 0. Its footnote advises a small positive floor for sending: with
    Q = 0 sending is free, and a quiet stretch would be followed by one huge message.
    """
    return np.maximum(floor, np.asarray(length) + spent - budget)


class VirtualQueue:
    """The queues of one cost for all entities that decide together.

    budget   λ̃, φ̃ or ψ̃: the average that may be spent; infinity means no limit
    initial  W, the length at the start: larger spends less early (Theorem 2)
    floor    the shortest length
    members  for coupled budgets (Section IV-C): the queue that each entity shares; by
             default each has its own. A shared queue is charged the sum over its members,
             and every member decides against its length.

    `unlimited` tells the entities without a budget.
    """

    def __init__(
        self,
        budget: Number,
        *,
        initial: Number = 0.0,
        floor: Number = 0.0,
        members: IntArray | None = None,
    ) -> None:
        self.budget = np.asarray(budget, dtype=np.float64)
        self.floor = np.asarray(floor, dtype=np.float64)
        self.members = members
        self.unlimited: BoolArray = np.asarray(self._by_entity(np.isinf(self.budget)))
        start = np.maximum(initial, self.floor)
        self.length: FloatArray = np.broadcast_to(
            np.where(np.isinf(self.budget), self.floor, start), self.budget.shape
        ).copy()

    @property
    def pressure(self) -> FloatArray:
        """The queue length that each entity decides against."""
        return np.asarray(self._by_entity(self.length))

    def _by_entity(self, values: Any) -> Any:
        return values if self.members is None else values[self.members]

    def charge(self, spent: Number) -> None:
        """Move to the next iteration, given what each entity was charged in this one."""
        if self.members is not None:
            by_queue = np.zeros(self.budget.shape)
            np.add.at(by_queue, self.members, spent)
            spent = by_queue
        self.length = next_queue(self.length, spent, self.budget, self.floor)
