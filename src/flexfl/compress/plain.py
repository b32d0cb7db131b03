"""The plain path: any compressor on plain arrays, one vector after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number, spread
from flexfl.compress.base import Compressor, Offers, Random
from flexfl.compress.message import Message, nothing
from flexfl.streams import Moment


class PlainVectors:
    """`Choices` of vectors b, (N, D) or (D,), and the messages made of them.

    Args:
        vectors: b.
        compressor: one for all, or one for each sender, where compressors have a memory.
        moment: when, and for whom.
    """

    def __init__(
        self, vectors: FloatArray, compressor: Compressor | Sequence[Compressor], moment: Moment
    ) -> None:
        self._vectors, self._moment = np.asarray(vectors), moment
        self._own = compressor if isinstance(compressor, Sequence) else None
        self._compressor = compressor = compressor[0] if isinstance(compressor, Sequence) else compressor
        self._rows = self._vectors.reshape(-1, self._vectors.shape[-1])
        self._offers: dict[int, Offers] = {}
        self.largest_first = callable(getattr(compressor, "gains", None))  # as `LargestFirst` has it

    @property
    def shape(self) -> tuple[int, ...]:
        """The senders' shape."""
        return self._vectors.shape[:-1]

    @cached_property
    def energy(self) -> FloatArray:
        return np.asarray(np.square(self._vectors, dtype=np.float64).sum(axis=-1))

    @cached_property
    def _gains(self) -> FloatArray:
        gains: Any = self._compressor
        return np.asarray(gains.gains(self._vectors))

    @property
    def dim(self) -> int:
        """D."""
        return self._rows.shape[1]

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        if getattr(self._compressor, "exact", False):
            return self.at_best(cut, enough)
        chosen = self._gains > np.square(np.asarray(cut))[..., None]
        counts = np.asarray(np.count_nonzero(chosen, axis=-1))
        return counts, np.asarray(np.sum(self._gains, axis=-1, where=chosen))

    def at_best(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        # Values are compared as they are: squares of small numbers would be rounded, or vanish.
        chosen = np.abs(self._vectors) > np.asarray(cut)[..., None]
        counts = np.asarray(np.count_nonzero(chosen, axis=-1))
        squares = np.square(self._vectors, dtype=np.float64)
        return counts, np.asarray(np.sum(squares, axis=-1, where=chosen))

    def most(self, components: IntArray) -> FloatArray:
        return np.broadcast_to(self.energy.reshape(-1), (len(components), len(self._rows)))

    @cached_property
    def _sendable(self) -> IntArray:
        """How many components a message can hold: of largest-first compressors only."""
        exact = getattr(self._compressor, "exact", False)
        return np.asarray(np.count_nonzero(self._vectors if exact else self._gains > 0, axis=-1))

    def everything(self) -> IntArray:
        if self.largest_first:
            return self._sendable
        return self._each(lambda offers: int(np.argmin(offers.kept)))

    def at_most(self, components: Count) -> IntArray:
        if self.largest_first:
            return np.minimum(components, self._sendable)
        wanted = spread(components, self.shape).reshape(-1)
        return np.array(
            [
                int(np.searchsorted(self.offers(n).components, k, side="right")) - 1
                for n, k in enumerate(wanted.tolist())
            ]
        ).reshape(self.shape)

    def offers(self, place: int) -> Offers:
        if place not in self._offers:
            self._offers[place] = self._of(place).offers(self._rows[place], self._random(place))
        return self._offers[place]

    def components(self, amounts: IntArray) -> IntArray:
        """Return k of each sender, for checked amounts."""
        if self.largest_first:
            return np.minimum(amounts, self._sendable)
        return self._of_amounts(amounts, "components")

    def nbytes(self, amounts: IntArray) -> IntArray:
        """Return the size of each message, for checked amounts."""
        if self.largest_first:
            sizes: Any = self._compressor
            return np.asarray(sizes.nbytes(self.components(amounts), self._rows.shape[1], self._rows.dtype))
        return self._of_amounts(amounts, "nbytes")

    def possible(self, amounts: IntArray) -> BoolArray:
        """Return whether each amount, from 0 on, is one that the compressor offers."""
        if self.largest_first:
            return np.asarray(amounts <= self._rows.shape[1])
        listed = enumerate(np.asarray(amounts).reshape(-1).tolist())
        found = [not amount or amount < len(self.offers(n).components) for n, amount in listed]
        return np.array(found).reshape(self.shape)

    def messages(self, amounts: IntArray) -> list[Message]:
        """Return what each sender sends; nothing for the amount 0."""
        return [
            self._message(n, amount) if amount else nothing(self.dim, self._rows.dtype)
            for n, amount in enumerate(np.asarray(amounts).reshape(-1).tolist())
        ]

    def _message(self, place: int, amount: int) -> Message:
        message = self._of(place).compress(self._rows[place], amount, self._random(place))
        if message.values.dtype != self._rows.dtype:
            who, found = type(self._compressor).__name__, message.values.dtype
            raise ValueError(f"{who} must send values of the vector's type, {self._rows.dtype}, got {found}")
        return message

    def _of(self, place: int) -> Compressor:
        return self._compressor if self._own is None else self._own[place]

    def _of_amounts(self, amounts: IntArray, name: str) -> IntArray:
        listed = np.asarray(amounts).reshape(-1).tolist()
        found = [
            int(getattr(self.offers(n), name)[amount]) if amount else 0 for n, amount in enumerate(listed)
        ]
        return np.array(found, dtype=np.int64).reshape(self.shape)

    def _each(self, number: Callable[[Offers], int]) -> IntArray:
        return np.array([number(self.offers(n)) for n in range(len(self._rows))]).reshape(self.shape)

    def _random(self, place: int) -> Random:
        return lambda: self._moment.generator("compress", place)
