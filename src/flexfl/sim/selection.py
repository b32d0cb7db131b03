"""The residuals of a run: what enters them, what rules may ask of them, what leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flexfl.arrays import BoolArray, FloatArray, IntArray, Number, spread
from flexfl.compress import DenseMagnitudes
from flexfl.mapped import leave_memory, pages_of
from flexfl.sim import kernels, torch_kernels

Vectors = NDArray[Any] | Tensor

_ROUNDING = 1e-12
"""Relative error that sums of squares may have; a row within it of being sent is measured."""
_MAPPED_BYTES = 16 * 2**20
"""Rows of a file that are used at once; scattered ones may bring in ten times as much with their pages."""


class Residuals:
    """`compress.Magnitudes` of vectors (N, D) or (D,) by fused passes, without copies and sorts.

    Rows are measured against the threshold that the rule will ask about as gradients enter, so
    that a rule that keeps to it costs no pass of its own, and what is above it is also what is
    sent. What was measured is remembered as long as the row does not change: with that, most
    rows that no gradient entered need not be read at all (see `kernels.unsure`).
    """

    def __init__(self, vectors: Vectors, *, empty: bool = False) -> None:
        """`empty` says that the vectors are zero, which saves reading them once."""
        self._rows: Any = vectors.reshape(-1, vectors.shape[-1])
        self._shape = tuple(vectors.shape[:-1])
        # Numba's passes on arrays, torch's on tensors.
        self._passes: Any = kernels if isinstance(vectors, np.ndarray) else torch_kernels
        count, dim = self._rows.shape
        dtype = np.dtype(str(vectors.dtype).removeprefix("torch."))
        single = isinstance(vectors, Tensor) and vectors.device.type == "mps"  # it sums in float32
        self._rounding = 1e-5 if single else _ROUNDING
        self._mapped = isinstance(vectors, np.ndarray) and pages_of(vectors) is not None
        self._at_once = max(1, _MAPPED_BYTES // (dim * dtype.itemsize)) if self._mapped else max(1, count)
        self._wanted = np.zeros(count)
        self._cut = np.zeros(count, dtype=dtype)
        self._changed: BoolArray = np.full(count, not empty)
        # What is known of each row: the threshold it was measured against, and what was found.
        self._seen_cut = np.zeros(count, dtype=dtype)
        self._count = np.zeros(count, dtype=np.int64)
        self._above, self._energy, self._scale = np.zeros(count), np.zeros(count), np.zeros(count)

    def expect(self, cut: Number) -> None:
        """Measure what enters from here on against this threshold."""
        wanted = spread(cut, self._shape).reshape(-1)
        if (wanted != self._wanted).any():
            self._wanted[:], self._cut[:] = wanted, kernels.rounded_down(wanted, self._cut.dtype.type(0))

    def changed(self) -> None:
        """The vectors were written to from outside: what is known of them is void."""
        self._changed[:] = True

    def entering(self, rows: IntArray) -> None:
        """All columns of these rows are about to be added to, and so measured."""
        self._seen_cut[rows] = self._cut[rows]
        self._count[rows] = 0
        self._above[rows] = 0.0
        self._energy[rows] = 0.0
        self._changed[rows] = False

    def add(self, rows: IntArray, start: int, step: NDArray[Any], grads: Vectors) -> None:
        """b[rows, start:start+P] += step·grads (M, P), measured on the way."""
        sums = self._count, self._above, self._energy
        self._passes.add_and_measure(self._rows, rows, start, step, grads, self._cut, *sums)

    def add_outer(self, rows: IntArray, start: int, step: NDArray[Any], x: Vectors, g: Vectors) -> None:
        """The same for gradients gᵀ·x given as x (M, K, in) and g (M, K, out)."""
        sums = self._count, self._above, self._energy
        self._passes.add_outer_and_measure(self._rows, rows, start, step, x, g, self._cut, *sums)

    def add_over_samples(self, rows: IntArray, start: int, step: NDArray[Any], g: Vectors) -> None:
        """The same for gradients Σ g given as g (M, K, P)."""
        sums = self._count, self._above, self._energy
        self._passes.add_over_samples_and_measure(self._rows, rows, start, step, g, self._cut, *sums)

    def entered(self, rows: IntArray) -> None:
        """So it was."""
        self._scale[rows] = self._energy[rows]
        self._leave_memory()

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        self.expect(cut)
        unsure = self._unsure(spread(enough, self._shape).reshape(-1))
        if len(unsure):
            self._measure(unsure)
        known = self._seen_cut == self._cut
        return (self._count * known).reshape(self._shape), (self._above * known).reshape(self._shape)

    def energies(self) -> FloatArray:
        rows = self._rows if isinstance(self._rows, np.ndarray) else self._rows.cpu().numpy()
        return DenseMagnitudes(rows).energies().reshape(*self._shape, rows.shape[1] + 1)

    @property
    def energy(self) -> FloatArray:
        """‖b‖²; NaN or infinite where a component is."""
        if self._changed.any():
            self._measure(self._changed.nonzero()[0])
        return self._energy.reshape(self._shape)

    def send(self, num_sent: IntArray, weights: Number, total: Vectors) -> FloatArray:
        """Move the k largest out of each row, add them weighted to `total`; returns ‖b − v‖²."""
        k = spread(num_sent, self._shape).reshape(-1)
        senders = k.nonzero()[0]
        energy = self.energy  # now all rows are known
        if len(senders):
            k = k[senders]
            cut, last = self._cut[senders], np.full(len(senders), -1, dtype=np.int64)
            by_threshold = (self._count[senders] == k) & (self._seen_cut[senders] == cut)
            whole = senders[by_threshold]
            self._energy[whole] = np.maximum(self._energy[whole] - self._above[whole], 0.0)
            self._count[whole] = 0
            self._above[whole] = 0.0
            select = (~by_threshold).nonzero()[0]
            if len(select):
                for part in self._parts(select):
                    cut[part], last[part] = self._passes.find_cuts(self._rows, senders[part], k[part])
            each = spread(weights, self._shape).reshape(-1)[senders]
            for part in self._parts(np.arange(len(senders))):
                self._passes.move(self._rows, senders[part], cut[part], last[part], each[part], total)
            if len(select):
                self._measure(senders[select])
        return energy.copy()

    def knowledge(self) -> FloatArray:
        """What is known of the rows, (5, N): a resumed run goes on with it, to the last bit."""
        _ = self.energy
        return np.stack([self._seen_cut.astype(float), self._count, self._above, self._energy, self._scale])

    def recall(self, knowledge: FloatArray) -> None:
        """Go on with what `knowledge` gave for these rows."""
        self._seen_cut[:], self._count[:], self._above[:], self._energy[:], self._scale[:] = knowledge
        self._changed[:] = False

    def _measure(self, rows: IntArray) -> None:
        sums = self._count, self._above, self._energy
        for part in self._parts(rows):
            self._passes.measure(self._rows, part, self._cut, *sums)
        self._seen_cut[rows] = self._cut[rows]
        self._scale[rows] = self._energy[rows]
        self._changed[rows] = False

    def _parts(self, rows: IntArray) -> Iterator[IntArray]:
        """A few rows after another if they come from a file, else all of them."""
        for begin in range(0, len(rows), self._at_once):
            yield rows[begin : begin + self._at_once]
            self._leave_memory()

    def _leave_memory(self) -> None:
        if self._mapped:
            leave_memory(self._rows)

    def _unsure(self, level: FloatArray) -> IntArray:
        """Rows to be read, since their excess Σ (b² − cut²)₊ may be as much as `level`."""
        known = self._seen_cut, self._count, self._above, self._energy, self._scale, self._changed
        return np.asarray(kernels.unsure(self._cut, *known, level, self._rounding))
