"""What rules may ask of the residuals, and the sending of what they decide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.sim import kernels


class Residuals:
    """`compress.Magnitudes` of vectors (N, D) or (D,) by fused passes, without copies and sorts.

    One pass answers `above` and the sum of all squares; its answer is kept, so that a rule's
    threshold is also the threshold by which is sent.
    """

    def __init__(self, vectors: NDArray[Any]) -> None:
        self._rows = vectors.reshape(-1, vectors.shape[-1])
        self._shape = vectors.shape[:-1]
        self.dim = int(vectors.shape[-1])
        self._cut: NDArray[Any] | None = None

    def _measure(self, cut: NDArray[Any]) -> NDArray[Any]:
        """One pass, unless the last one had the same cut."""
        if self._cut is None or not np.array_equal(cut, self._cut):
            self._count, self._above, self._energy = kernels.measure(self._rows, cut)
            self._cut = cut
        return self._cut

    def above(self, cut: Number) -> tuple[IntArray, FloatArray]:
        cut = np.broadcast_to(np.asarray(cut, dtype=np.float64), self._shape).reshape(-1)
        rounded = cut.astype(self._rows.dtype)
        # |b| > cut stays exact with the largest number of the rows' own type that is not above
        # the cut; rounding up would drop components in between.
        lower = np.nextafter(rounded, np.zeros((), rounded.dtype))
        rounded = np.where(rounded > cut, lower, rounded)
        self._measure(rounded)
        return self._count.reshape(self._shape), self._above.reshape(self._shape)

    def energies(self) -> FloatArray:
        squares = np.sort(self._rows.astype(np.float64) ** 2, axis=1)[:, ::-1]
        sums = np.concatenate([np.zeros((len(squares), 1)), np.cumsum(squares, axis=1)], axis=1)
        return sums.reshape(*self._shape, self.dim + 1)

    @property
    def energy(self) -> FloatArray:
        """‖b‖²; NaN or infinite where a component is."""
        self._last_cut()
        return np.asarray(self._energy.reshape(self._shape))

    def send(self, num_sent: IntArray, weights: Number, total: NDArray[np.float64]) -> FloatArray:
        """Move the k largest out of each row, add them weighted to `total`; returns what stays, ‖b − v‖²."""
        k = np.broadcast_to(np.asarray(num_sent), self._shape).reshape(-1)
        cut = self._last_cut().copy()
        kept = self._energy.copy()
        senders = np.flatnonzero(k > 0)
        last = np.full(len(k), -1, dtype=np.int64)
        by_threshold = self._count[senders] == k[senders]
        kept[senders[by_threshold]] -= self._above[senders[by_threshold]]
        if len(select := senders[~by_threshold]):
            cut[select], last[select] = kernels.find_cuts(self._rows, select, k[select])
        each = np.broadcast_to(np.asarray(weights, dtype=np.float64), self._shape).reshape(-1)
        kernels.move(self._rows, senders, cut[senders], last[senders], each[senders], total)
        if len(select):
            kept[select] = kernels.measure(self._rows[select], cut[select])[2]
        return np.asarray(np.maximum(kept, 0.0).reshape(self._shape))

    def _last_cut(self) -> NDArray[Any]:
        """The cut of the last pass; a first pass is made if there was none."""
        if self._cut is None:
            return self._measure(np.zeros(len(self._rows), dtype=self._rows.dtype))
        return self._cut
