"""The residuals of one iteration: what enters them, what rules may ask of them, what leaves them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number, spread
from flexfl.compress import DenseMagnitudes
from flexfl.sim import kernels


class Residuals:
    """`compress.Magnitudes` of vectors (N, D) or (D,) by fused passes, without copies and sorts.

    cut is the threshold that the rule is expected to ask about. Rows are measured against it as
    gradients enter, so that a rule that keeps to it costs no pass of its own, and what is above it
    is also what is sent.
    """

    def __init__(self, vectors: NDArray[Any], cut: Number = 0.0) -> None:
        self._rows = vectors.reshape(-1, vectors.shape[-1])
        self._shape = vectors.shape[:-1]
        self._start(self._exact(cut))

    def _start(self, cut: NDArray[Any]) -> None:
        count = len(self._rows)
        self._cut = cut
        self._count = np.zeros(count, dtype=np.int64)
        self._above, self._energy = np.zeros(count), np.zeros(count)
        self._measured: BoolArray = np.zeros(count, dtype=np.bool_)

    def _exact(self, cut: Number) -> NDArray[Any]:
        """The largest number of the rows' own type that is not above the cut, so that |b| > cut is exact."""
        wanted = spread(cut, self._shape).reshape(-1)
        rounded = wanted.astype(self._rows.dtype)
        lower = np.nextafter(rounded, np.zeros((), rounded.dtype))
        return np.where(rounded > wanted, lower, rounded)

    def add(self, rows: IntArray, start: int, step: FloatArray, grads: NDArray[Any]) -> None:
        """b[rows, start:start+P] += step·grads (M, P), measured on the way."""
        factor = step.astype(self._rows.dtype)
        sums = self._count, self._above, self._energy
        kernels.add_and_measure(self._rows, rows, start, factor, grads, self._cut, *sums)

    def add_outer(
        self, rows: IntArray, start: int, step: FloatArray, x: NDArray[Any], g: NDArray[Any]
    ) -> None:
        """The same for gradients gᵀ·x given as x (M, K, in) and g (M, K, out)."""
        factor = step.astype(self._rows.dtype)
        sums = self._count, self._above, self._energy
        kernels.add_outer_and_measure(self._rows, rows, start, factor, x, g, self._cut, *sums)

    def entered(self, rows: IntArray) -> None:
        """All columns of these rows were added to, and so measured."""
        self._measured[rows] = True

    def _measure(self) -> None:
        """See to the rows that no gradient entered."""
        if not self._measured.all():
            rows = np.flatnonzero(~self._measured)
            kernels.measure(self._rows, rows, self._cut, self._count, self._above, self._energy)
            self._measured[:] = True

    def above(self, cut: Number) -> tuple[IntArray, FloatArray]:
        exact = self._exact(cut)
        if not np.array_equal(exact, self._cut):
            self._start(exact)
        self._measure()
        return self._count.reshape(self._shape), self._above.reshape(self._shape)

    def energies(self) -> FloatArray:
        return DenseMagnitudes(self._rows).energies().reshape(*self._shape, self._rows.shape[1] + 1)

    @property
    def energy(self) -> FloatArray:
        """‖b‖²; NaN or infinite where a component is."""
        self._measure()
        return self._energy.reshape(self._shape)

    def send(self, num_sent: IntArray, weights: Number, total: NDArray[Any]) -> FloatArray:
        """Move the k largest out of each row, add them weighted to `total`; returns ‖b − v‖²."""
        self._measure()
        k = spread(num_sent, self._shape).reshape(-1)
        cut, kept = self._cut.copy(), self._energy.copy()
        last = np.full(len(k), -1, dtype=np.int64)
        senders = np.flatnonzero(k > 0)
        by_threshold = self._count[senders] == k[senders]
        kept[senders[by_threshold]] -= self._above[senders[by_threshold]]
        if len(select := senders[~by_threshold]):
            cut[select], last[select] = kernels.find_cuts(self._rows, select, k[select])
        each = spread(weights, self._shape).reshape(-1)
        kernels.move(self._rows, senders, cut[senders], last[senders], each[senders], total)
        if len(select):
            kernels.measure(self._rows, select, cut, self._count, self._above, kept)
        return np.asarray(np.maximum(kept, 0.0).reshape(self._shape))
