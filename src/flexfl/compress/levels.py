"""Quantised top-k: the k largest components, each as its sign and one of L magnitudes, entropy-coded.

The magnitudes from the smallest that is sent to the largest are divided into L cells, even in their
logarithm; a component is sent as its cell, and arrives as the cell's mean. What that is off stays in the
residual. How many components and how many levels are decided together: with n_c components in cell c, whose
magnitudes have the sum S_c, the message takes Σ S_c²/n_c off ‖b‖², and has about

    log2 C(d, k) + k + log2 [(k + L − 1)! / ((L − 1)! Π n_c!)] + 16·L  bits.

Cells end at bins of magnitude, sixteen to an octave, so that n_c and S_c of every cut and every L follow from
one histogram (`sim.level_kernels`). Components below 2⁻³¹ of the largest wait for another message.

Legend: u bin of a magnitude · C choices of L · K components that can be sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray
from flexfl.compress.base import Offers, Random, Weigh
from flexfl.compress.message import (
    HEADER_BYTES,
    Message,
    levels_bytes,
    shortened,
    subset_bytes,
    table_bytes,
)
from flexfl.compress.topk import topk_mask
from flexfl.parameters import Whole

DIGITS = 4
"""Bins of magnitude have the exponent and so many digits of the mantissa: sixteen to an octave."""
BINS = 31 << DIGITS
"""Bins below the largest magnitude from which components are sent."""
MOST_BITS = 5
EXACT = 512
"""Of so few components every k is tried with every L."""
HOPEFUL = 4
"""Bins that are looked into with each L where the price has steps."""
NEAR = 0.01
"""A message at the edge of a bin that is so near to being worth it, as a share of what it takes off ‖b‖², is
looked at more closely: one more or less component may make it worth it."""
NEAR_FEW = 0.05
"""The same for a message of at most `EXACT` components, of which each counts for more."""
LIMITS = (EXACT, HOPEFUL, NEAR, NEAR_FEW)
"""All of these, for the compiled search: what it is not given it keeps after it has changed."""
_AT_ONCE = 2**15
"""Numbers of components that are weighed at once: temporaries stay within some ten megabytes."""


@dataclass(frozen=True)
class Levels:
    """Send the k largest components with b bits each: a sign, and one of L = 2^(b−1) magnitudes.

    `bits` is b; without it the best b from 1 to 5 is chosen with k, in each message. The amount is
    (k − 1)·C + i + 1 for the i-th of the C choices of b.
    """

    bits: Annotated[
        int | None, Whole(1, "leave it out to decide it in each message", optional=True, most=MOST_BITS)
    ] = None

    @property
    def choices(self) -> tuple[int, ...]:
        """The numbers of levels L among which a message has one."""
        every = tuple(1 << b for b in range(MOST_BITS))
        return every if self.bits is None else (every[self.bits - 1],)

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        sizes = _Sorted(vector, self.choices)
        k = np.arange(1, len(sizes) + 1)
        kept, nbytes = sizes.at(k, np.arange(len(self.choices)))
        return Offers(
            np.append(0, np.repeat(k, len(self.choices))),
            np.append(sizes.energy, kept.reshape(-1)),
            np.append(0, nbytes.reshape(-1)),
        )

    def best(self, vector: FloatArray, weigh: Weigh, random: Random) -> int:
        """Return the amount with the least objective: every L at edges of bins, then all k near the best.

        Of few components, and among the largest where the best message has few, every k is tried with every
        L. Where the price has steps, the best k may be one at which a step ends, anywhere in a bin: with each
        L those bins are looked into, too, that have the least objective if their own components cost nothing.
        """
        sizes = _Sorted(vector, self.choices)
        edges = sizes.edges()
        none = np.zeros(1, dtype=np.int64)
        amount, least = 0, float(weigh(none, none, np.array([sizes.energy]))[0])
        if not len(edges):
            return amount
        every = np.arange(len(self.choices))
        if len(sizes) <= EXACT:
            return self._better(sizes, np.arange(1, len(sizes) + 1), every, weigh, amount, least)[0]
        nothing, first = least, np.append(0, edges[:-1])
        amount, least, place, choice, near_enough = self._better(sizes, edges, every, weigh, amount, least)
        if near_enough and edges[place] <= EXACT:
            last = edges[min(int(np.searchsorted(edges, EXACT)), len(edges) - 1)]
            amount, least = self._better(sizes, np.arange(1, last + 1), every, weigh, amount, least)[:2]
        elif near_enough:
            near = np.arange(first[place] + 1, edges[min(place + 1, len(edges) - 1)] + 1)
            amount, least = self._better(sizes, near, np.array([choice]), weigh, amount, least)[:2]
        if not weigh.affine:
            kept, nbytes = sizes.at(edges, every)
            for choice in every.tolist():
                before = np.append(0, nbytes[:-1, choice])
                hope = weigh(first, before, kept[:, choice])
                for place in np.argsort(hope, kind="stable")[:HOPEFUL].tolist():
                    if hope[place] < nothing:
                        k = np.arange(first[place] + 1, edges[place] + 1)
                        amount, least = self._better(sizes, k, np.array([choice]), weigh, amount, least)[:2]
        return amount

    def _better(
        self, sizes: _Sorted, k: IntArray, choices: IntArray, weigh: Weigh, amount: int, least: float
    ) -> tuple[int, float, int, int, bool]:
        """Return the better of an amount and those of these k with these choices of L, and its objective.

        Also place and choice of the best of these, and whether it is better than the amount, or nearly.
        """
        kept, nbytes = sizes.at(k, choices)
        value = weigh(np.repeat(k, len(choices)), nbytes.reshape(-1), kept.reshape(-1))
        found = int(np.argmin(value))
        place, choice = found // len(choices), int(choices[found % len(choices)])
        candidate = (int(k[place]) - 1) * len(self.choices) + choice + 1
        if value[found] < least or (value[found] == least and candidate < amount):
            return candidate, float(value[found]), place, choice, True
        none = np.zeros(1, dtype=np.int64)
        taken = weigh(none, none, np.array([sizes.energy - kept.flat[found]]))[0]
        near = NEAR_FEW if k[place] <= EXACT else NEAR
        return amount, least, place, choice, bool(value[found] < least + near * taken)

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        k, levels = self.meaning(amount)
        u = bins_of(vector)
        sendable = np.where(fitting(vector, u), vector, 0)
        places = np.flatnonzero(topk_mask(sendable, k))
        codes = cells_of(u[places], levels)
        return Message.of_levels(
            len(vector),
            places,
            vector[places] < 0,
            codes,
            means_of(np.abs(vector[places]), codes, levels),
            "short",
        )

    def at_most(self, vector: FloatArray, components: int) -> int:
        sendable = np.count_nonzero(fitting(vector, bins_of(vector)))
        return min(components, int(sendable)) * len(self.choices)

    def meaning(self, amount: int) -> tuple[int, int]:
        """Return k and L of an amount from 1 on."""
        k, choice = divmod(amount - 1, len(self.choices))
        return k + 1, self.choices[choice]

    def least_bytes(self, components: IntArray, dim: int) -> IntArray:
        """Return a size that no message of so many components, or more, is below; from 1 on.

        Places and signs take the most at k = 2/3·D; for all components, places take nothing.
        """
        k = np.asarray(components)
        table = table_bytes(self.choices[0], "short", np.float32)
        return np.asarray(
            HEADER_BYTES + table + np.minimum(subset_bytes(k, dim) + (k + 7) // 8, (dim + 7) // 8)
        )


def bins_of(vector: NDArray[Any]) -> IntArray:
    """Return the bin of each magnitude: its exponent and first digits, which are in order as bits are."""
    double = vector.dtype.itemsize == 8
    bits = np.abs(vector).view(np.uint64 if double else np.uint32)
    return np.asarray(bits >> bits.dtype.type((52 if double else 23) - DIGITS), dtype=np.int64)


def fitting(vector: FloatArray, bins: IntArray) -> BoolArray:
    """Return which components can be sent: those that are not zero, nor too small beside the largest."""
    return np.asarray((bins > bins.max(initial=0) - BINS) & (vector != 0))


def cells_of(bins: IntArray, levels: int) -> IntArray:
    """Return the cell of each component that is sent, given their bins, lowest to highest in L cells.

    >>> cells_of(np.array([3, 4, 5, 6]), 2)
    array([0, 0, 1, 1])
    """
    low, span = bins.min(), bins.max() - bins.min() + 1
    return np.asarray((bins - low) * levels // span)


def means_of(magnitudes: FloatArray, codes: IntArray, levels: int) -> FloatArray:
    """Return the mean magnitude of each cell, with eight significant bits; of an empty one that below it."""
    count = np.bincount(codes, minlength=levels)
    total = np.bincount(codes, weights=magnitudes.astype(np.float64), minlength=levels)
    filled = np.maximum.accumulate(np.where(count > 0, np.arange(levels), 0))
    return shortened(total[filled] / count[filled], magnitudes.dtype)


class _Sorted:
    """The components of a vector that can be sent, the largest first, and what any k and L come to."""

    def __init__(self, vector: FloatArray, choices: tuple[int, ...]) -> None:
        u = bins_of(vector)
        fit = fitting(vector, u)
        order = np.argsort(-np.abs(vector[fit]), kind="stable")
        size = np.abs(vector[fit])[order].astype(np.float64)
        self._u, self._choices, self._dim, self._dtype = u[fit][order], choices, len(vector), vector.dtype
        below = float(np.square(vector[~fit], dtype=np.float64).sum())
        # What is not sent is summed from the smallest up: beside a large component small ones would be lost.
        self._rest = np.append(np.cumsum(np.square(size)[::-1])[::-1], 0.0) + below
        totals = (np.append(0.0, np.cumsum(size**power)) for power in (1, 2))
        self._sums: tuple[NDArray[Any], ...] = (np.arange(len(size) + 1), *totals)
        # How many are in bins from each one on, the lowest bin of all first.
        self._base = int(self._u[-1]) if len(size) else 0
        number = np.bincount(self._u - self._base, minlength=1)
        self._from = np.append(np.cumsum(number[::-1])[::-1], 0)
        self.energy = float(self._rest[0])

    def __len__(self) -> int:
        return len(self._u)

    def edges(self) -> IntArray:
        """Return the k after each bin that is not empty, ascending."""
        return np.unique(self._from[self._from > 0])

    def at(self, k: IntArray, choices: IntArray) -> tuple[FloatArray, IntArray]:
        """Return ‖b − v‖² and the size of messages of these k (A,), for some choices of L, (A, C)."""
        kept, nbytes = np.zeros((len(k), len(choices))), np.zeros((len(k), len(choices)), dtype=np.int64)
        for begin in range(0, len(k), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            for column, choice in enumerate(choices.tolist()):
                kept[part, column], nbytes[part, column] = self._of(k[part], self._choices[choice])
        return kept, nbytes

    def _of(self, k: IntArray, levels: int) -> tuple[FloatArray, IntArray]:
        if not len(k):
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        low = self._u[k - 1]
        span = self._u[0] - low + 1
        # A component is in a cell from c on if (u − low)·L ≥ c·span.
        first = low[:, None] + -(-(np.arange(1, levels) * span[:, None]) // levels)
        ends = np.concatenate(
            [k[:, None], self._from[first - self._base], np.zeros((len(k), 1), dtype=np.int64)], axis=1
        )
        n, S, Q = (sums[ends[:, :-1]] - sums[ends[:, 1:]] for sums in self._sums)
        m = shortened(np.divide(S, n, out=np.ones_like(S), where=n > 0), self._dtype).astype(np.float64)
        off = np.where(n > 0, np.maximum(Q - 2 * m * S + n * m * m, 0.0), 0.0).sum(axis=1)
        table = table_bytes(levels, "short", self._dtype)
        return self._rest[k] + off, levels_bytes(n, self._dim, table)
