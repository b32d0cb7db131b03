"""Residuals for any compressor, by its plain path, and the choice between that and the fused one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number
from flexfl.compress.base import Compressor, LargestFirst, Offers, Searchable, Weighed
from flexfl.compress.levels import Levels
from flexfl.compress.plain import PlainVectors, least_bytes
from flexfl.compress.topk import TopK
from flexfl.counting import Counts
from flexfl.sim.level_residuals import LevelResiduals
from flexfl.sim.residuals import Residuals, Vectors
from flexfl.streams import Entities, Moment, Streams

_KEPT = 2**23
"""Components of rows whose offers are kept within an iteration: some hundred megabytes at the most."""

_MARGIN = 1e-9
"""For sums in another order: a row that comes so near to sending is looked at."""

_FUSED: dict[type, type[Residuals]] = {TopK: Residuals, Levels: LevelResiduals}
"""Compressors with passes of their own, by exact type: a subclass may do anything."""


def residuals_for(
    compressor: Compressor | list[Compressor],
    vectors: Vectors,
    *,
    counts: Counts = "components",
    empty: bool = False,
) -> Residuals:
    """Return residuals that send by the fastest path that gives what the compressor's plain path gives.

    Args:
        compressor: one for all rows, or one for each, where they have a memory.
        vectors: (N, D) or (D,).
        counts: what the cost of sending counts.
        empty: the vectors are zero.
    """
    fused = None if isinstance(compressor, list) else _FUSED.get(type(compressor))
    if fused is LevelResiduals and not isinstance(vectors, np.ndarray):
        fused = None  # its passes are compiled for the host
    if fused is None or isinstance(compressor, list) or not _agrees(fused, compressor, vectors):
        return PlainResiduals(vectors, compressor, counts=counts, empty=empty)
    return fused(vectors, compressor, counts=counts, empty=empty)


def _agrees(fused: type[Residuals], compressor: Compressor, like: Vectors) -> bool:
    """Try both paths on a few rows with ties and zeros, of the type and on the device of `like`."""
    rng = np.random.default_rng(0)
    start = rng.integers(-3, 4, (4, 50)) / 2
    kind = np.dtype(str(like.dtype).removeprefix("torch."))
    amounts = np.array([0, 1, 7, 20])
    found = []
    for make in (fused, PlainResiduals):
        rows: Any = start.astype(kind)
        if not isinstance(like, np.ndarray):
            rows = torch.from_numpy(rows).to(like.device)
        total = rows[0] * 0
        vectors = make(rows, compressor)
        vectors.expect(0.0, Streams(0).moment("uplink", 0, 50, Entities.all_clients(4)))
        vectors.take(amounts).add_to(total, 0.25)
        found.append(
            [np.asarray(total), np.asarray(rows), vectors.components(amounts), vectors.energy.copy()]
        )
    return all(np.allclose(mine, theirs, rtol=1e-6, atol=0) for mine, theirs in zip(*found, strict=True))


class PlainResiduals(Residuals):
    """Gradients enter by the fused passes; what leaves is made by the compressor, one row after another."""

    def __init__(
        self,
        vectors: Vectors,
        compressor: Compressor | list[Compressor],
        *,
        counts: Counts = "components",
        empty: bool = False,
    ) -> None:
        super().__init__(vectors, compressor, counts=counts, empty=empty)
        self._compressors = compressor if isinstance(compressor, list) else [compressor] * len(self._rows)
        self.searching = isinstance(self._compressors[0], Searchable)
        self.largest_first = isinstance(self._compressors[0], LargestFirst)
        self._moment: Moment | None = None
        self._opened: dict[int, PlainVectors] = {}
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}

    def expect(self, cut: Number, moment: Moment | None = None) -> None:
        """Begin an iteration; what enters is measured for exact values, which no compressor can beat."""
        super().expect(cut)
        if moment is not None:
            self._moment = moment
        self._forget()

    def _forget(self) -> None:
        self._opened, self._asked = {}, {}

    def _opened_row(self, place: int) -> PlainVectors:
        assert self._moment is not None
        if place not in self._opened:
            if len(self._opened) * self._dim > _KEPT:
                self._opened.clear()
            self._opened[place] = PlainVectors(
                self._host_row(place), self._compressors[place], self._moment.of(place), self.counts
            )
        return self._opened[place]

    def _each(self, rows: Any, number: Callable[[int, PlainVectors], Any]) -> NDArray[Any]:
        """Return a number for each of these rows, 0 for the others."""
        found = np.zeros(len(self._rows), dtype=np.int64)
        for row in np.asarray(rows).tolist():
            found[row] = int(number(row, self._opened_row(row)))
        return found.reshape(self._shape)

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        cuts = np.broadcast_to(cut, self._shape).reshape(-1).astype(np.float64)
        level = np.broadcast_to(enough, self._shape).reshape(-1)
        # No component gains more than its square: the excess of exact values bounds a row's excess.
        most = self.at_best(cut, np.asarray(enough) * (1 - _MARGIN))
        count, energy = (found.reshape(-1) for found in most)
        rows = np.flatnonzero((count > 0) & (energy * (1 + _MARGIN) >= level + count * np.square(cuts)))
        counts, gains = np.zeros(len(cuts), dtype=np.int64), np.zeros(len(cuts))
        for row in rows.tolist():
            counts[row], gains[row] = self._opened_row(row).above(cuts[row])
        return counts.reshape(self._shape), gains.reshape(self._shape)

    def everything(self) -> IntArray:
        return self._each(self._non_zero(), lambda row, one: one.everything())

    def at_most(self, components: Count) -> IntArray:
        wanted = np.broadcast_to(components, self._shape).reshape(-1)
        rows = self._non_zero()
        return self._each(rows[wanted[rows] > 0], lambda row, one: one.at_most(int(wanted[row])))

    def _non_zero(self) -> IntArray:
        return np.flatnonzero(self.energy.reshape(-1) > 0)

    def offers(self, place: int) -> Offers:
        return self._opened_row(place).offers(0)

    def least(self, objective: Weighed, reach: IntArray) -> tuple[IntArray, FloatArray]:
        best, kept = np.zeros(len(reach), dtype=np.int64), np.zeros(len(reach))
        for column, place in enumerate(objective.places.tolist()):
            one, alone = self._opened_row(place), objective.of(np.array([column]))
            best[column], kept[column] = one.least_alone(alone)
        return best, kept

    def _least_bytes(self, k: IntArray) -> IntArray:
        return least_bytes(self._compressors[0], k, self._dim, self._dtype)

    binned = None  # type: ignore[assignment]

    def possible(self, amounts: IntArray) -> BoolArray:
        if self.largest_first:
            return super().possible(amounts)
        listed = np.broadcast_to(amounts, self._shape).reshape(-1)
        found = np.ones(len(listed), dtype=bool)
        for row in np.flatnonzero(listed).tolist():
            found[row] = bool(self._opened_row(row).possible(np.asarray(listed[row])))
        return found.reshape(self._shape)

    def components(self, amounts: IntArray) -> IntArray:
        return self._sizes_of(amounts, 0)

    def nbytes(self, amounts: IntArray) -> IntArray:
        return self._sizes_of(amounts, 1)

    def _sizes_of(self, amounts: IntArray, which: int) -> IntArray:
        """Return k or the size of each message; both are found at once, since a row may have to be opened."""
        listed = np.broadcast_to(amounts, self._shape).reshape(-1)
        found = np.zeros(len(listed), dtype=np.int64)
        for row in np.flatnonzero(listed).tolist():
            key = row, int(listed[row])
            if key not in self._asked:
                one, amount = self._opened_row(row), np.asarray(listed[row])
                self._asked[key] = int(one.components(amount)), int(one.nbytes(amount))
            found[row] = self._asked[key][which]
        return found.reshape(self._shape)

    def hand_over(self, amounts: IntArray, weights: Number, total: Vectors) -> None:
        _ = self.energy  # now all rows are known
        listed = np.broadcast_to(amounts, self._shape).reshape(-1)
        each = np.broadcast_to(weights, self._shape).reshape(-1)
        senders = np.flatnonzero(listed)
        for row in senders.tolist():
            [message] = self._opened_row(row).messages(np.asarray(listed[row]))
            self._opened.pop(row, None)
            places: Any = message.indices
            values: Any = message.values.astype(self._dtype)
            added: Any = each[row] * message.values.astype(np.float64)  # as the fused pass: in float64
            if not self._by_numba:
                device = self._rows.device
                places, values = (torch.from_numpy(array).to(device) for array in (places, values))
                before = total[places].cpu().numpy()
                total[places] = torch.from_numpy((before + added).astype(self._dtype)).to(device)
            else:
                total[places] += added
            self._rows[row][places] -= values
        self._forget()
        if len(senders):
            self._measure(senders)
