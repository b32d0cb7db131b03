"""Virtual queues: how far spending has run ahead of the budget, equations (16)–(18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number
from flexfl.state import State


def next_queue(length: Number, spent: Number, budget: Number, floor: Number) -> FloatArray:
    """Return Q' = max(floor, Q + spent − budget).

    The paper's floor is 0. Its footnote advises a small positive floor for sending: with Q = 0 sending is
    free, and a quiet stretch would be followed by one huge message.

    >>> next_queue(1.0, spent=0.5, budget=0.2, floor=0.0)
    np.float64(1.3)
    """
    return np.maximum(floor, np.asarray(length) + spent - budget)


class VirtualQueue:
    """The queues of one cost for all entities that decide together.

    Args:
        budget: λ̃, φ̃ or ψ̃, the average that may be spent; infinity means no limit.
        initial: W, the length at the start: larger spends less early (Theorem 2).
        floor: the shortest length.
        members: for shared budgets (Section IV-C), the queue of each entity; by default each has its own.
            A shared queue is charged the sum over its members, and every member decides against its length.

    Attributes:
        length: Λ, Φ or Ψ, one for each queue.
        unlimited: which entities have no budget.
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
        self._any_unlimited = bool(self.unlimited.any())

    @property
    def pressure(self) -> FloatArray:
        """The queue length that each entity decides against."""
        return np.asarray(self._by_entity(self.length))

    @property
    def priced(self) -> FloatArray:
        """The same, and 0 for entities without a budget, to whom nothing has a price."""
        return np.where(self.unlimited, 0.0, self.pressure) if self._any_unlimited else self.pressure

    def _by_entity(self, values: Any) -> Any:
        return values if self.members is None else values[self.members]

    def charge(self, spent: Number) -> None:
        """Move to the next iteration, given what each entity was charged in this one."""
        if self.members is not None:
            by_queue = np.zeros(self.budget.shape)
            np.add.at(by_queue, self.members, spent)
            spent = by_queue
        self.length = next_queue(self.length, spent, self.budget, self.floor)

    def as_remote(self) -> RemoteQueue:
        """Return the same queues as a client sees them: kept by the server."""
        return RemoteQueue(self.budget, initial=self.length, floor=self.floor)

    def state(self) -> State:
        return {"length": self.length}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        found = np.asarray(state["length"], dtype=np.float64)
        if found.size != self.length.size:
            raise ValueError(f"queue must have {self.length.size} lengths, got {found.size}")
        self.length = found.reshape(self.length.shape).copy()


class RemoteQueue(VirtualQueue):
    """Queues that the server keeps, since others are charged to them too; it sends their lengths."""

    def learn(self, length: Number) -> None:
        """Take over the lengths that the server has sent."""
        self.length = np.broadcast_to(np.asarray(length, dtype=np.float64), self.budget.shape).copy()

    def charge(self, spent: Number) -> None:
        """Do nothing: the server charges them when it learns what was spent."""
