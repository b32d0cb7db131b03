"""Randomness as an argument: named streams from one seed, by a counter-based generator.

A stream is named by a purpose and up to three counters (an iteration, or a client and an
epoch). Philox takes the names as its key and counter, so any stream can be opened at any
time, on any machine, in any order: a run that stops and goes on draws the same numbers, and so
can a client of a deployment, whose number is the n-th that `uniform` gives for N clients.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray, IntArray

_TINY = 2.0**-54


@cache
def _purpose_key(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Moment:
    """What may be looked at when costs are drawn and decisions made: one role, one iteration.

    `shape` is that of everything the role decides: (N,) for clients, () for the server.
    `uniform(name)` gives one number in (0, 1) for each entity.
    """

    iteration: int
    dim: int
    shape: tuple[int, ...]
    uniform: Callable[[str], FloatArray]

    def of(self, entity: int) -> Moment:
        """The same moment as one of the entities sees it: its own of the numbers."""
        return Moment(self.iteration, self.dim, (), lambda name: np.asarray(self.uniform(name)[entity]))


class _Reused:
    """One Philox generator of a purpose, set to any counter: five times cheaper than a new one."""

    def __init__(self, key: IntArray) -> None:
        self._bits = np.random.Philox(key=key)
        self._state: Any = self._bits.state  # buffer empty, as in a new generator
        self._counter: IntArray = self._state["state"]["counter"]
        self._generator = np.random.Generator(self._bits)

    def at(self, counters: tuple[int, ...]) -> np.random.Generator:
        self._counter[:] = 0
        for place, counter in enumerate(counters, start=1):
            self._counter[place] = counter
        self._bits.state = self._state
        return self._generator


@dataclass(frozen=True)
class Streams:
    """All the random numbers of a run."""

    seed: int
    _reused: dict[str, _Reused] = field(default_factory=dict, repr=False, compare=False)

    def generator(self, purpose: str, *counters: int) -> np.random.Generator:
        """The stream of that name, from its beginning; valid until the purpose is asked for again."""
        if purpose not in self._reused:
            self._reused[purpose] = _Reused(np.array([self.seed, _purpose_key(purpose)], dtype=np.uint64))
        return self._reused[purpose].at(counters)

    def uniform(self, purpose: str, iteration: int, shape: tuple[int, ...] = ()) -> FloatArray:
        """Numbers in the open interval (0, 1); the n-th belongs to client n."""
        drawn = self.generator(purpose, iteration).random(math.prod(shape))
        return np.maximum(drawn, _TINY).reshape(shape)

    def torch_seed(self, purpose: str, iteration: int) -> int:
        """A seed for generators that are not ours (dropout)."""
        return int(self.generator(purpose, iteration).integers(2**63))

    def moment(self, role: str, iteration: int, dim: int, shape: tuple[int, ...] = ()) -> Moment:
        """The view of this iteration that costs and rules of `role` are given."""

        def uniform(name: str) -> FloatArray:
            return self.uniform(f"{role}/{name}", iteration, shape)

        return Moment(iteration, dim, shape, uniform)
