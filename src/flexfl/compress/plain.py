"""The plain path: any compressor on plain arrays, one vector after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number, spread
from flexfl.compress.base import Compressor, Offers, Random, Searchable, Weighed
from flexfl.compress.message import HEADER_BYTES, Message, nothing
from flexfl.counting import Counts, size_in
from flexfl.streams import Moment

SPARED = 1e-9
"""Where everything is sent, so much of ‖b‖² may stay: rounding would decide on components that small."""
_FEW = 3
"""Messages of one vector that are made to learn their sizes; after that, all sizes are listed."""


class PlainVectors:
    """`Choices` of vectors b, (N, D) or (D,), and the messages made of them.

    Args:
        vectors: b.
        compressor: one for all, or one for each sender, where compressors have a memory.
        moment: when, and for whom.
        counts: what the cost counts.
    """

    def __init__(
        self,
        vectors: FloatArray,
        compressor: Compressor | Sequence[Compressor],
        moment: Moment,
        counts: Counts = "components",
    ) -> None:
        self._vectors, self._moment, self.counts = np.asarray(vectors), moment, counts
        self._own = compressor if isinstance(compressor, Sequence) else None
        self._compressor = compressor = compressor[0] if isinstance(compressor, Sequence) else compressor
        self._rows = self._vectors.reshape(-1, self._vectors.shape[-1])
        self._offers: dict[int, Offers] = {}
        self._made: dict[tuple[int, int], Message] = {}
        self._counted: dict[int, int] = {}
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
        if self.searching:
            found = [self._least_left(n) for n in range(len(self._rows))]
            return np.array(found, dtype=np.int64).reshape(self.shape)
        return self._each(lambda offers: int(np.argmin(offers.kept)))

    def _least_left(self, place: int) -> int:
        """Return the amount of one vector that leaves the least behind, of a `Searchable` compressor."""
        weigh = _AlmostFree(SPARED * float(self.energy.reshape(-1)[place]) / self.dim)
        return self._searchable(place).best(self._rows[place], weigh, self._random(place))

    def at_most(self, components: Count) -> IntArray:
        if self.largest_first:
            return np.minimum(components, self._sendable)
        wanted = spread(components, self.shape).reshape(-1)
        if self.searching:
            return self._largest(wanted)
        found = [self._amount(n, k) for n, k in enumerate(wanted.tolist())]
        return np.array(found, dtype=np.int64).reshape(self.shape)

    def _amount(self, place: int, components: int) -> int:
        """Return the largest amount of one vector with no more than so many components."""
        if self._counts_itself and components > 0:
            return min(components, self._sendable_of(place))
        return int(np.searchsorted(self.offers(place).components, components, side="right")) - 1

    @property
    def _counts_itself(self) -> bool:
        """Whether amounts are k, of which the compressor names the largest without listing them."""
        return callable(getattr(self._compressor, "sendable", None))

    def _sendable_of(self, place: int) -> int:
        if place not in self._counted:
            compressor: Any = self._of(place)
            self._counted[place] = int(compressor.sendable(self._rows[place], self._random(place)))
        return self._counted[place]

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

    def sizes(self, amounts: IntArray) -> NDArray[Any]:
        """Return what the cost is a function of, for checked amounts."""
        k = self.components(amounts)
        return k if self.counts == "components" else size_in(self.counts, k, self.nbytes(amounts))

    def sizes_of(self, components: IntArray) -> NDArray[Any]:
        if self.counts == "components":
            return np.asarray(components)
        return size_in(
            self.counts, components, least_bytes(self._compressor, components, self.dim, self._rows.dtype)
        )

    @property
    def searching(self) -> bool:
        """Whether the compressor finds the best amount itself."""
        return callable(getattr(self._compressor, "best", None))

    def _largest(self, components: IntArray) -> IntArray:
        """Return the largest amounts with no more than so many components, of a `Searchable` compressor."""
        found = [
            self._searchable(n).at_most(self._rows[n], k)
            for n, k in enumerate(components.reshape(-1).tolist())
        ]
        return np.array(found, dtype=np.int64).reshape(self.shape)

    def _searchable(self, place: int) -> Searchable:
        compressor = self._of(place)
        assert isinstance(compressor, Searchable)
        return compressor

    def least(self, objective: Weighed, reach: IntArray) -> tuple[IntArray, FloatArray]:
        best, kept = np.zeros(len(reach), dtype=np.int64), np.zeros(len(reach))
        for column, place in enumerate(objective.places.tolist()):
            best[column], kept[column] = self.least_alone(objective.of(np.array([column])), place)
        return best, kept

    def least_alone(self, objective: Weighed, place: int = 0) -> tuple[int, float]:
        """Return the best amount of one vector, and what it leaves behind; the objective is of it alone."""
        weigh = _Weighed(objective, self.counts)
        amount = self._searchable(place).best(self._rows[place], weigh, self._random(place))
        energy = float(self.energy.reshape(-1)[place])
        if not amount:
            return 0, energy
        message = self._message(place, amount)
        sent = self._rows[place][message.indices].astype(np.float64)
        return amount, energy - float(np.square(sent).sum() - np.square(sent - message.values).sum())

    def possible(self, amounts: IntArray) -> BoolArray:
        """Return whether each amount, from 0 on, is one that the compressor offers."""
        if self.largest_first:
            return np.asarray(amounts <= self._rows.shape[1])
        if self.searching:
            return np.asarray(amounts <= self._largest(np.full(self.shape, self.dim)))
        listed = enumerate(np.asarray(amounts).reshape(-1).tolist())
        if self._counts_itself:
            found = [not amount or amount <= self._sendable_of(n) for n, amount in listed]
        else:
            found = [not amount or amount < len(self.offers(n).components) for n, amount in listed]
        return np.array(found).reshape(self.shape)

    def messages(self, amounts: IntArray) -> list[Message]:
        """Return what each sender sends; nothing for the amount 0."""
        return [
            self._message(n, amount) if amount else nothing(self.dim, self._rows.dtype)
            for n, amount in enumerate(np.asarray(amounts).reshape(-1).tolist())
        ]

    def _message(self, place: int, amount: int) -> Message:
        if (place, amount) not in self._made:
            self._made[place, amount] = self._compressed(place, amount)
        return self._made[place, amount]

    def _compressed(self, place: int, amount: int) -> Message:
        message = self._of(place).compress(self._rows[place], amount, self._random(place))
        if message.values.dtype != self._rows.dtype:
            who, found = type(self._compressor).__name__, message.values.dtype
            raise ValueError(f"{who} must send values of the vector's type, {self._rows.dtype}, got {found}")
        return message

    def _of(self, place: int) -> Compressor:
        return self._compressor if self._own is None else self._own[place]

    def _of_amounts(self, amounts: IntArray, name: str) -> IntArray:
        listed = enumerate(np.asarray(amounts).reshape(-1).tolist())
        found = [self._of_amount(n, amount, name) if amount else 0 for n, amount in listed]
        return np.array(found, dtype=np.int64).reshape(self.shape)

    def _of_amount(self, place: int, amount: int, name: str) -> int:
        """Return k or the size of one message: of the message itself, where not all need be listed for it."""
        made = sum(1 for row, _ in self._made if row == place)
        listing = place in self._offers or made >= _FEW
        if self.searching or (self._counts_itself and ((place, amount) in self._made or not listing)):
            return int(getattr(self._message(place, amount), name))
        return int(getattr(self.offers(place), name)[amount])

    def _each(self, number: Callable[[Offers], int]) -> IntArray:
        return np.array([number(self.offers(n)) for n in range(len(self._rows))]).reshape(self.shape)

    def _random(self, place: int) -> Random:
        return lambda: self._moment.generator("compress", place)


def least_bytes(compressor: Any, components: IntArray, dim: int, dtype: Any) -> IntArray:
    """Return a size that no message of so many components is below; nothing takes none."""
    k = np.asarray(components)
    if callable(getattr(compressor, "gains", None)):
        return np.asarray(compressor.nbytes(k, dim, dtype))
    least = getattr(compressor, "least_bytes", None)
    size = least(k, dim) if callable(least) else HEADER_BYTES + (k + 7) // 8  # a sign for each, at the least
    return np.where(k > 0, size, 0)


class _Weighed:
    """The objective of messages of one vector."""

    def __init__(self, objective: Weighed, counts: Counts) -> None:
        self._objective, self._counts = objective, counts
        self.affine = objective.affine is not None

    def __call__(self, components: IntArray, nbytes: IntArray, kept: FloatArray) -> FloatArray:
        sizes = size_in(self._counts, components, nbytes)
        return np.asarray(self._objective.of_sizes(sizes[:, None], kept[:, None])[:, 0])


class _AlmostFree:
    """What a message leaves behind, and hardly a price for each component."""

    affine = True

    def __init__(self, price: float) -> None:
        self._price = price

    def __call__(self, components: IntArray, nbytes: IntArray, kept: FloatArray) -> FloatArray:
        return np.asarray(kept + self._price * components)
