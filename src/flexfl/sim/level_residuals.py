"""Residuals that send levels (`compress.levels`), by compiled passes: a histogram instead of a sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number
from flexfl.compress.base import Offers, Weighed
from flexfl.compress.levels import BINS, DIGITS, LIMITS, Levels
from flexfl.compress.message import (
    HEADER_BYTES,
    levels_bytes,
    log_factorials,
    order_bytes,
    subset_bytes,
    table_bytes,
)
from flexfl.compress.plain import SPARED
from flexfl.counting import Counts, size_in
from flexfl.sim import level_kernels, level_sending
from flexfl.sim.residuals import Residuals, Vectors
from flexfl.streams import Moment

_BITS = 6.0
"""About what a component takes, with its place: the threshold that rows are measured against."""
_AT_ONCE = 2**24
"""Components of rows that are looked at together: what is noted of them takes some ten megabytes."""


class LevelResiduals(Residuals):
    """Rows whose largest components leave as levels; only rows that may pay for a message are looked at."""

    largest_first = False
    searching = True
    _compressor: Levels

    def __init__(
        self,
        vectors: Vectors,
        compressor: Levels,
        *,
        counts: Counts = "components",
        empty: bool = False,
    ) -> None:
        super().__init__(vectors, compressor, counts=counts, empty=empty)
        double = self._dtype.itemsize == 8
        self._upper = (52 if double else 23) - DIGITS
        self._choices = np.array(compressor.choices)
        self._largest = float(np.ldexp(255 / 256, np.finfo(self._dtype).maxexp))
        every_k = np.arange(self._dim + 1)
        tables = [table_bytes(levels, "short", self._dtype) for levels in compressor.choices]
        self._tables = (
            self._choices,
            log_factorials(self._dim + int(self._choices[-1])),
            subset_bytes(every_k, self._dim),
            HEADER_BYTES + np.array(tables),
            self._largest,
        )
        most = np.full(int(self._choices[-1]), -(-self._dim // int(self._choices[-1])))  # the longest code
        self._longest = int(self._tables[3].max() + self._tables[2].max() + self._dim + order_bytes(most))
        self._shortest = np.where(every_k > 0, compressor.least_bytes(every_k, self._dim), 0)
        self._factor = np.sqrt({"components": 1.0, "bits": _BITS / 32, "bytes": _BITS / 8}[counts])
        count = len(self._rows)
        # What `least` has found in this iteration.
        self._found, self._found_bytes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._found_cut, self._found_top = np.zeros(count, dtype=self._dtype), np.zeros(count, dtype=np.int64)
        self._found_means = np.zeros((count, int(self._choices[-1])), dtype=self._dtype)

    def expect(self, cut: Number, moment: Moment | None = None) -> None:
        """Begin an iteration; a component takes less than one word."""
        super().expect(np.asarray(cut) * self._factor, moment)
        self._found[:] = 0

    def changed(self) -> None:
        super().changed()
        self._found[:] = 0

    def _least_bytes(self, k: IntArray) -> IntArray:
        return self._shortest[k]

    # What rules may ask ------------------------------------------------------------------------

    def least(self, objective: Weighed, reach: IntArray) -> tuple[IntArray, FloatArray]:
        energy = self.energy.reshape(-1)[objective.places]  # now all rows are known
        best, kept = np.zeros(len(reach), dtype=np.int64), energy.copy()
        columns = np.flatnonzero((energy > 0) & (reach > 0))
        each = self._dim if objective.affine is not None else 4 * self._longest  # its table of prices
        at_once = max(1, min(_AT_ONCE // each, self._at_once))
        for begin in range(0, len(columns), at_once):
            part = columns[begin : begin + at_once]
            some = objective if len(part) == len(reach) else objective.of(part)
            best[part], kept[part] = self._search(some.places, reach[part], self._prices(some))
            self._leave_memory()
        return best, kept

    def _search(
        self, rows: IntArray, reach: IntArray, prices: tuple[tuple[Any, ...], FloatArray]
    ) -> tuple[IntArray, FloatArray]:
        """Return the best amounts of some rows and what they leave behind; more is remembered."""
        bits = self._bits(self._rows), self._upper
        amounts, kept, nbytes, cut, top, means = level_kernels.search(
            self._rows, *bits, rows, *(BINS, LIMITS), self._energy[rows], reach, *prices, self._tables
        )
        self._found[rows], self._found_bytes[rows], self._found_means[rows] = amounts, nbytes, means
        self._found_cut[rows], self._found_top[rows] = cut, top
        return amounts, kept

    def _prices(self, objective: Weighed) -> tuple[tuple[Any, ...], FloatArray]:
        """Return how the search weighs messages: by a price for their size, or by a table of prices."""
        number, unit = len(objective.places), {"components": 0.0, "bits": 0.25, "bytes": 1.0}[self.counts]
        none, V = np.zeros(number), np.array(objective.V)
        if (affine := objective.affine) is not None:
            return (V, *affine, unit), np.zeros((number, 0))
        every = np.arange(self._dim + 1 if self.counts == "components" else self._longest + 1)
        sizes = size_in(self.counts, every, every)[:, None]
        prices = objective.of_sizes(np.broadcast_to(sizes, (len(every), number)), none)
        return (V, none, none, unit), np.ascontiguousarray(prices.T)

    def everything(self) -> IntArray:
        energy = self.energy.reshape(-1)  # now all rows are known
        found = np.zeros(len(energy), dtype=np.int64)
        for rows in self._parts(np.flatnonzero(energy > 0)):
            free, price = np.zeros(len(rows)), SPARED * energy[rows] / self._dim
            whole = np.full(len(rows), self._dim)
            found[rows] = self._search(rows, whole, ((free + 1, free, price, 0.0), np.zeros((len(rows), 0))))[
                0
            ]
        return found.reshape(self._shape)

    def at_most(self, components: Count) -> IntArray:
        wanted = np.broadcast_to(components, self._shape).reshape(-1)
        amounts = np.minimum(wanted, self._sendable()) * len(self._choices)
        return np.asarray(amounts).reshape(self._shape)

    def _sendable(self) -> IntArray:
        """Return how many components of each row can be sent."""
        found = np.zeros(len(self._rows), dtype=np.int64)
        for rows in self._parts(np.arange(len(found))):
            bits = self._bits(self._rows), self._upper
            found[rows] = level_sending.sendable(self._rows, *bits, rows, BINS)
        return found

    def offers(self, place: int) -> Offers:
        return self._compressor.offers(self._host_row(place), np.random.default_rng)

    binned = None  # type: ignore[assignment]

    # What leaves -------------------------------------------------------------------------------

    def possible(self, amounts: IntArray) -> BoolArray:
        listed = np.asarray(amounts).reshape(-1)
        if ((listed == 0) | (listed == self._found)).all():
            return np.ones(self._shape, dtype=bool)
        return np.asarray(listed <= self.at_most(self._dim).reshape(-1)).reshape(self._shape)

    def components(self, amounts: IntArray) -> IntArray:
        amounts = np.asarray(amounts)
        return np.where(amounts > 0, (amounts - 1) // len(self._choices) + 1, 0)

    def nbytes(self, amounts: IntArray) -> IntArray:
        listed = np.broadcast_to(amounts, self._shape).reshape(-1)
        size = np.where((listed > 0) & (listed == self._found), self._found_bytes, 0)
        others = np.flatnonzero((listed > 0) & (listed != self._found))
        if len(others):
            chosen = self._chosen(others, listed[others])
            counts = level_sending.prepare(self._rows, *chosen, self._largest)[1]
            for row, amount, cells in zip(others.tolist(), listed[others].tolist(), counts, strict=True):
                levels = self._compressor.meaning(amount)[1]
                table = table_bytes(levels, "short", self._dtype)
                size[row] = levels_bytes(cells[:levels], self._dim, table)
        return size.reshape(self._shape)

    def _chosen(self, rows: IntArray, amounts: IntArray) -> tuple[Any, ...]:
        """Return what says which components these rows send, as the passes take it."""
        k, choice = np.divmod(amounts - 1, len(self._choices))
        bits = self._bits(self._rows), self._upper
        cut, last = self._found_cut[rows], np.full(len(rows), -1, dtype=np.int64)
        top, known = self._found_top[rows], self._found[rows] == amounts
        unsaid = np.flatnonzero(~known | np.isnan(cut))
        if len(unsaid):
            cut[unsaid], last[unsaid] = self._find_cuts(rows[unsaid], k[unsaid] + 1)
            top[unsaid] = level_sending.tops(*bits, rows[unsaid])
        # The smallest that is sent: equal to the cut if `last` says so, else above it.
        word = bits[0].dtype.type
        least = cut.view(bits[0].dtype) + np.where(last < 0, word(1), word(0))
        low = (least >> word(self._upper)).astype(np.int64)
        return *bits, rows, cut, last, self._choices[choice], low, top

    def hand_over(self, amounts: IntArray, weights: Number, total: Vectors) -> None:
        """Move what is sent out of each row and add it, weighted, to `total`."""
        listed = np.broadcast_to(amounts, self._shape).reshape(-1)
        senders = np.flatnonzero(listed)
        _ = self.energy  # now all rows are known
        each = np.broadcast_to(weights, self._shape).reshape(-1)
        at_once = max(1, min(_AT_ONCE // self._dim, self._at_once))
        for begin in range(0, len(senders), at_once):
            part = senders[begin : begin + at_once]
            chosen, means = self._chosen(part, listed[part]), self._found_means[part]
            others = np.flatnonzero(self._found[part] != listed[part])
            if len(others):
                own = chosen[:2] + tuple(array[others] for array in chosen[2:])
                found = level_sending.prepare(self._rows, *own, self._largest)[0]
                means[others, : found.shape[1]] = found
            level_sending.move(self._rows, *chosen, means, each[part], total)
            self._leave_memory()
        self._found[senders] = 0
        if len(senders):
            self._measure(senders)
