"""Randomness as an argument: named streams from one seed, by a counter-based generator.

A stream is named by a purpose and up to three counters (an iteration, or a client and an epoch). Philox
takes the names as its key and counter, so any stream can be opened at any time, on any machine, in any
order: a resumed run draws the same numbers, and so does a deployed client, whose number is the n-th of
those drawn for all clients.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray

_TINY = 2.0**-54


@cache
def _purpose_key(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, eq=False)
class Entities:
    """Who decides together: all clients, some of them, one of them, or the server.

    Attributes:
        numbers: the clients' numbers, (N,) for all or some, () for one; decisions have this shape.
        population: how many clients there are in all.
        server: whether it is the server, which is alone.
    """

    numbers: IntArray
    population: int
    server: bool = False
    everyone: bool = field(init=False)

    def __post_init__(self) -> None:
        whole = self.numbers.shape == (self.population,) and (
            self.population == 0 or bool((self.numbers == np.arange(self.population)).all())
        )
        object.__setattr__(self, "everyone", whole and not self.server)

    @classmethod
    def all_clients(cls, population: int) -> Entities:
        """Return all clients: decisions of shape (N,)."""
        return cls(np.arange(population), population)

    @classmethod
    def one_client(cls, number: int, population: int) -> Entities:
        """Return one client of `population`: decisions of shape ()."""
        return cls(np.asarray(number), population)

    @classmethod
    def the_server(cls) -> Entities:
        """Return the server: decisions of shape ()."""
        return cls(np.asarray(0), 1, server=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a decision."""
        return self.numbers.shape

    def pick(self, values: Any) -> NDArray[Any]:
        """Return the entities' share of values given as one for all or one for each client.

        >>> Entities.one_client(2, 3).pick([0.1, 0.2, 0.3])
        array(0.3)
        >>> Entities.one_client(2, 3).pick(0.5)
        array(0.5)
        """
        array = np.asarray(values)
        if array.ndim == 0:
            return array
        if self.server:
            raise ValueError(f"must be one number, got {len(array)}: there is one server")
        if len(array) != self.population:
            raise ValueError(
                f"must be one number for each of the {self.population} clients, got {len(array)}"
            )
        return array if self.everyone else np.asarray(array[self.numbers])

    def name(self, place: int) -> str:
        """Return what to call the entity at that place of a (flattened) decision."""
        return "the server" if self.server else f"client {int(self.numbers.reshape(-1)[place])}"


@dataclass(frozen=True, eq=False)
class Moment:
    """One iteration as the entities of one knob see it: what costs and rules may look at.

    Attributes:
        role: compute, uplink or downlink.
        iteration: counted from 0.
        dim: D, the number of parameters.
        entities: whom it is for.
        seconds: since the run began, by its clock (`flexfl.clock`); NaN for a run without one.
    """

    role: str
    iteration: int
    dim: int
    entities: Entities
    streams: Streams = field(repr=False)
    seconds: float = math.nan

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is decided: (N,) for clients, () for one client or the server."""
        return self.entities.shape

    def uniform(self, name: str) -> FloatArray:
        """Return one number in (0, 1) for each entity, the same wherever and whenever it is drawn."""
        who = self.entities
        shape = () if who.server else (who.population,)
        drawn = self.streams.uniform(f"{self.role}/{name}", self.iteration, shape)
        return drawn if who.everyone or who.server else np.asarray(drawn[who.numbers])

    def generator(self, name: str, place: int = 0) -> np.random.Generator:
        """Return the stream of one entity in this iteration; valid until the next one is asked for."""
        number = int(self.entities.numbers.reshape(-1)[place])
        return self.streams.generator(f"{self.role}/{name}/each", self.iteration, number)

    def pick(self, values: Any) -> NDArray[Any]:
        """Return the entities' share of values given as one for all or one for each client."""
        return self.entities.pick(values)

    def of(self, place: int) -> Moment:
        """Return the same moment as one of the entities sees it."""
        who = self.entities
        one = Entities(np.asarray(who.numbers.reshape(-1)[place]), who.population, who.server)
        return replace(self, entities=one)

    def at(self, iteration: int) -> Moment:
        """Return another iteration of the same entities, for a memory that has missed some."""
        return replace(self, iteration=iteration)


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
        """Return the stream of that name, from its beginning; valid until the purpose is asked for again."""
        if purpose not in self._reused:
            self._reused[purpose] = _Reused(np.array([self.seed, _purpose_key(purpose)], dtype=np.uint64))
        return self._reused[purpose].at(counters)

    def uniform(self, purpose: str, iteration: int, shape: tuple[int, ...] = ()) -> FloatArray:
        """Return numbers in the open interval (0, 1); the n-th belongs to client n."""
        drawn = self.generator(purpose, iteration).random(math.prod(shape))
        return np.maximum(drawn, _TINY).reshape(shape)

    def torch_seed(self, purpose: str, iteration: int, step: int = 0) -> int:
        """Return a seed for generators that are not ours (dropout), in a local step of an iteration."""
        return int(self.generator(purpose, iteration, step).integers(2**63))

    def moment(
        self, role: str, iteration: int, dim: int, entities: Entities, seconds: float = math.nan
    ) -> Moment:
        """Return the view of this iteration that costs and rules of `role` are given."""
        return Moment(role, iteration, dim, entities, self, seconds)
