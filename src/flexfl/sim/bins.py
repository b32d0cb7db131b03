"""Components counted by magnitude: what `control.binned` asks of residuals, by compiled passes.

Bins are by exponent and the first digits of the mantissa: the bits of magnitudes are in order. They reach
down from the largest magnitude of a row; all that is smaller shares the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray

Array = NDArray[Any]
Note = Callable[[IntArray, IntArray, FloatArray, Array], None]

_DIGITS = 7
BINS = 2048
"""For each row: sixteen octaves of magnitudes, in a table that stays in the first-level cache."""
_SCANNED = 2**20
"""Components that are sorted at once, or those of one vector: temporaries stay within some ten megabytes."""


class MagnitudeBins:
    """Some rows of residuals as `control.binned.Bins`."""

    def __init__(
        self, columns: IntArray, vectors: Array, rows: IntArray, reach: IntArray, note: Note
    ) -> None:
        """Count the components of vectors[rows].

        Args:
            columns: how whoever asks calls these rows.
            vectors: (N, D), on the host.
            rows: (M,).
            reach: bins beyond this k are left out, (M,).
            note: what `remember` calls.
        """
        self.columns, self.remember = columns, note
        self._vectors, self._rows = vectors, rows
        double = vectors.dtype.itemsize == 8
        self._bits = vectors.view(np.uint64 if double else np.uint32)
        self._shift = (52 if double else 23) - _DIGITS
        count, total, self._base = _by_bin(vectors, self._bits, self._shift, rows, BINS)
        self._ids, edges, left = _edges(count, total, reach)
        self.edges, self.left = edges.T, left.T
        # The smallest and the next larger magnitude of each bin; in a row with fewer bins the last one again.
        word = self._bits.dtype.type
        place = (self._ids + self._base[:, None]).astype(word)
        least = np.where(self._ids > 0, place << word(self._shift), word(0))
        beyond = (place + word(1)) << word(self._shift)
        self._cut = (np.maximum(least, word(1)) - word(1)).view(vectors.dtype)
        self.cut = self._cut.T
        self.low, self.high = (
            np.square(bits.view(vectors.dtype), dtype=np.float64).T for bits in (least, beyond)
        )

    def scan(self, wanted: BoolArray) -> Iterator[tuple[IntArray, IntArray, FloatArray, Array]]:
        """Yield some of the rows (m,) with k, ‖b − v‖² and a cut, (L, m), for each k in their wanted bins."""
        length = np.where(wanted, np.diff(self.edges, axis=0), 0).sum(axis=0)
        order = np.argsort(length, kind="stable")[np.count_nonzero(length == 0) :]
        end = len(order)
        while end:
            longest = int(length[order[end - 1]])
            begin = max(0, end - max(1, _SCANNED // longest))
            some = order[begin:end]
            found = _sorted_bins(
                self._vectors,
                self._bits,
                self._shift,
                self._base[some],
                self._rows[some],
                self._ids[some],
                self.edges.T[some],
                self.left.T[some],
                self._cut[some],
                np.ascontiguousarray(wanted.T[some]),
                longest,
            )
            yield some, *(array.T for array in found)
            end = begin


@njit(parallel=True, cache=True)  # type: ignore[untyped-decorator]
def _by_bin(vectors: Array, bits: Array, shift: int, rows: Array, bins: int) -> tuple[Array, Array, Array]:
    """How many non-zero components of each row have their magnitude in each bin, the sum of their squares.

    Bin n > 0 of a row has the magnitudes whose upper bits are base + n, bin 0 all that are smaller.
    """
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    count = np.zeros((len(rows), bins), dtype=np.int32)
    total = np.zeros((len(rows), bins))
    base = np.zeros(len(rows), dtype=np.int64)
    for i in prange(len(rows)):
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        c, s = count[i], total[i]
        largest = bits.dtype.type(0)
        for j in range(len(ordered)):
            largest = max(largest, ordered[j] & ~sign)
        base[i] = max(0, int(largest >> places) - (bins - 1))
        first = int(base[i])
        for j in range(len(vector)):
            size = ordered[j] & ~sign
            if size != 0:
                place = max(int(size >> places) - first, 0)
                c[place] += 1
                s[place] += np.float64(vector[j]) * np.float64(vector[j])
    return count, total, base


@njit(parallel=True, cache=True)  # type: ignore[untyped-decorator]
def _edges(count: Array, total: Array, reach: Array) -> tuple[Array, Array, Array]:
    """The bins that are not empty, the largest first, until k reaches `reach`; k and ‖b − v‖² at their edges.

    What stays is summed from the smallest up: taking what was sent off the total would lose the small ones.
    """
    number = np.zeros(len(count), dtype=np.int64)
    for i in prange(len(count)):
        k = 0
        for place in range(count.shape[1] - 1, -1, -1):
            if count[i, place] > 0:
                k += count[i, place]
                number[i] += 1
                if k >= reach[i]:
                    break
    most = max(1, number.max())
    ids = np.zeros((len(count), most), dtype=np.int64)
    edges = np.zeros((len(count), most + 1), dtype=np.int64)
    left = np.zeros((len(count), most + 1))
    for i in prange(len(count)):
        place, k = count.shape[1], 0
        for e in range(number[i]):
            place -= 1
            while count[i, place] == 0:
                place -= 1
            k += count[i, place]
            ids[i, e], edges[i, e + 1] = place, k
        rest = 0.0
        for lower in range(place):
            rest += total[i, lower]
        ids[i, number[i] :] = place if number[i] > 0 else 0
        edges[i, number[i] :] = k
        left[i, number[i] :] = rest
        for e in range(number[i] - 1, -1, -1):
            rest += total[i, ids[i, e]]
            left[i, e] = rest
    return ids, edges, left


@njit(parallel=True, cache=True)  # type: ignore[untyped-decorator]
def _sorted_bins(
    vectors: Array,
    bits: Array,
    shift: int,
    base: Array,
    rows: Array,
    ids: Array,
    edges: Array,
    left: Array,
    cut: Array,
    wanted: Array,
    longest: int,
) -> tuple[Array, Array, Array]:
    """For each k within the wanted bins: k, ‖b − v‖², and the largest magnitude that is not sent.

    That is −1 where it equals the smallest that is sent. Rows with fewer such k are filled up by k = 0, ∞.
    """
    sign = bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1)
    places = bits.dtype.type(shift)
    ks = np.zeros((len(rows), longest), dtype=np.int64)
    kept = np.full((len(rows), longest), np.inf)
    limit = np.full((len(rows), longest), -1, dtype=vectors.dtype)
    for i in prange(len(rows)):
        vector, ordered = vectors[rows[i]], bits[rows[i]]
        slot = np.full(BINS, -1, dtype=np.int64)
        length, lowest = 0, BINS
        for e in range(ids.shape[1]):
            if wanted[i, e]:
                slot[ids[i, e]] = length
                length += edges[i, e + 1] - edges[i, e]
                lowest = min(lowest, ids[i, e])
        first = int(base[i])
        least = bits.dtype.type(1) if lowest == 0 else bits.dtype.type(lowest + first) << places
        inside = np.empty(length, dtype=vectors.dtype)
        for j in range(len(vector)):
            size = ordered[j] & ~sign
            if size >= least:
                place = max(int(size >> places) - first, 0)
                at = slot[place]
                if at >= 0:
                    inside[at] = abs(vector[j])
                    slot[place] = at + 1
        begin = 0
        for e in range(ids.shape[1]):
            if wanted[i, e]:
                end = begin + edges[i, e + 1] - edges[i, e]
                inside[begin:end].sort()
                rest = left[i, e + 1]
                for at in range(begin, end):  # the last to be sent first
                    ks[i, at] = edges[i, e + 1] - (at - begin)
                    kept[i, at] = rest
                    if at == begin:
                        limit[i, at] = cut[i, e]
                    elif inside[at - 1] < inside[at]:
                        limit[i, at] = inside[at - 1]
                    rest += np.float64(inside[at]) * np.float64(inside[at])
                begin = end
    return ks, kept, limit
