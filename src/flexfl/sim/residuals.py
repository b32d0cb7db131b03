"""The residuals of a run: what enters them, what rules may ask of them, what leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number
from flexfl.compress.base import Offers, Weighed
from flexfl.compress.message import message_bytes
from flexfl.compress.topk import TopK
from flexfl.counting import Counts, size_in
from flexfl.mapped import leave_memory, pages_of
from flexfl.sim import kernels, torch_kernels
from flexfl.sim.bins import MagnitudeBins
from flexfl.streams import Moment

Vectors = NDArray[Any] | Tensor

_ROUNDING = 1e-12
"""Relative error that sums of squares may have; a row within it of being sent is measured."""
_MAPPED_BYTES = 16 * 2**20
"""Rows of a file that are used at once; scattered ones may bring in ten times as much with their pages."""
_COUNTED = 2**11
"""Rows whose components are counted by magnitude at once: their bins take some thirty megabytes."""
_COPIED = 2**24
"""Components that are copied from a device at once."""
_SIZES = 2**20
"""Sizes of messages are looked up in a table up to so many parameters."""


@dataclass(frozen=True, eq=False)
class Outgoing:
    """The messages v of the rows of some residuals; they leave the rows in the pass that adds them up."""

    source: Residuals
    amounts: IntArray

    def add_to(self, total: Vectors, weights: Number = 1.0) -> None:
        """Add Σ w·v to `total`, (D,)."""
        self.source.hand_over(self.amounts, weights, total)


class Residuals:
    """Vectors (N, D) or (D,) with their `compress.Choices`, by fused passes without copies and sorts.

    For top-k. Rows are measured against the threshold that the rule will ask about as gradients enter, so
    that a rule that keeps to it costs no pass of its own, and what is above it is also what is sent. What
    was measured is remembered as long as the row does not change: with that, most rows that no gradient
    entered need not be read at all (see `kernels.unsure`).
    """

    largest_first = True

    searching = False

    def __init__(
        self,
        vectors: Vectors,
        compressor: Any = None,
        *,
        counts: Counts = "components",
        empty: bool = False,
    ) -> None:
        """Set up residuals.

        Args:
            vectors: (N, D) or (D,).
            compressor: what sends, where it has parameters.
            counts: what the cost of sending counts.
            empty: the vectors are zero, which saves reading them once.
        """
        self.vectors, self._compressor, self.counts = vectors, compressor, counts
        self._rows: Any = vectors.reshape(-1, vectors.shape[-1])
        self._shape = tuple(vectors.shape[:-1])
        # Numba's passes on arrays, torch's on tensors.
        self._by_numba = isinstance(vectors, np.ndarray)
        self._passes: Any = kernels if self._by_numba else torch_kernels
        count, self._dim = self._rows.shape
        self.dim: int = self._dim
        self._dtype = dtype = np.dtype(str(vectors.dtype).removeprefix("torch."))
        single = isinstance(vectors, Tensor) and vectors.device.type == "mps"  # it sums in float32
        self._rounding = 1e-5 if single else _ROUNDING
        self._mapped = isinstance(vectors, np.ndarray) and pages_of(vectors) is not None
        at_once = _MAPPED_BYTES // (self._dim * dtype.itemsize) if self._mapped else count
        self._at_once = max(1, at_once)
        # Magnitudes by exponent and four digits of the mantissa: bits in order, see `kernels.find_cuts`.
        self._shift = 64 - 1 - 15 if dtype.itemsize == 8 else 32 - 1 - 12
        every_k = np.arange(self._dim + 1) if self._dim <= _SIZES else None
        self._sizes = None if every_k is None else message_bytes(every_k, self._dim, dtype.name)
        self._one = np.ones(1, dtype=dtype)
        self._counted: IntArray | None = None  # the amounts whose components are known
        self._answer: IntArray = np.zeros(0, dtype=np.int64)
        self._wanted = np.zeros(count)
        self._cut = np.zeros(count, dtype=dtype)
        self._changed: BoolArray = np.full(count, not empty)
        # What is known of each row: the threshold it was measured against, and what was found.
        self._seen_cut = np.zeros(count, dtype=dtype)
        self._count = np.zeros(count, dtype=np.int64)
        self._above, self._energy, self._scale = np.zeros(count), np.zeros(count), np.zeros(count)

    # What enters -------------------------------------------------------------------------------

    def expect(self, cut: Number, moment: Moment | None = None) -> None:
        """Measure what enters from now on against this threshold."""
        self._aim(cut)

    def _aim(self, cut: Number) -> None:
        wanted = np.broadcast_to(cut, self._shape).reshape(-1)
        if (wanted != self._wanted).any():
            self._wanted[:], self._cut[:] = wanted, kernels.rounded_down(wanted, self._cut.dtype.type(0))

    def changed(self) -> None:
        """Forget what is known of the vectors: they were written to from outside."""
        self._changed[:] = True

    def entering(self, rows: IntArray) -> None:
        """Begin to add to all columns of these rows, which are measured on the way."""
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
        sums = self._cut, self._count, self._above, self._energy
        if isinstance(x, Tensor) and isinstance(g, Tensor):
            torch_kernels.add_outer_and_measure(self._rows, rows, start, step, x, g, *sums)
            return
        for array in (x, g, step):  # BLAS trusts what it is given
            if array.dtype != self._dtype or not array.flags.c_contiguous:  # type: ignore[union-attr]
                raise TypeError(f"factors must be contiguous {self._dtype}, got {array.dtype}")
        outputs, width = g.shape[2], x.shape[2]
        at_once = min(outputs, max(1, kernels.PIECE // width))
        last = outputs - (-(-outputs // at_once) - 1) * at_once
        # Sizes and factors as BLAS wants them, by address; held here for as long as the kernel runs.
        sizes = np.array([width, at_once, x.shape[1], outputs, last], dtype=np.int32)
        gemm = kernels.GEMM[self._dtype]
        into = self._rows, rows, start, step, x, g
        kernels.add_outer_and_measure(gemm, kernels.TRANSPOSED, sizes, self._one, *into, *sums)

    def add_over_samples(self, rows: IntArray, start: int, step: NDArray[Any], g: Vectors) -> None:
        """The same for gradients Σ g given as g (M, K, P)."""
        sums = self._count, self._above, self._energy
        self._passes.add_over_samples_and_measure(self._rows, rows, start, step, g, self._cut, *sums)

    def entered(self, rows: IntArray) -> None:
        """Finish the pass; remember how large the rows were when they were measured."""
        self._scale[rows] = self._energy[rows]
        self._leave_memory()

    # What rules may ask ------------------------------------------------------------------------

    @property
    def energy(self) -> FloatArray:
        """‖b‖²; NaN or infinite where a component is."""
        if self._changed.any():
            self._measure(self._changed.nonzero()[0])
        return self._energy.reshape(self._shape)

    def at_best(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        self._aim(cut)
        unsure = self._unsure(np.broadcast_to(enough, self._shape).reshape(-1))
        if len(unsure):
            self._measure(unsure)
        known = self._seen_cut == self._cut
        return (self._count * known).reshape(self._shape), (self._above * known).reshape(self._shape)

    above = at_best

    def most(self, components: IntArray) -> FloatArray:
        _ = self.energy  # now all rows are known
        # As a function of k the energy of the k largest is concave: it is below its tangents.
        tangent = self._above + (components - self._count) * np.square(self._seen_cut, dtype=np.float64)
        return np.asarray(np.minimum(tangent, self._energy) + self._rounding * self._scale)

    def reach(self, objective: Weighed, grid: IntArray, margin: float) -> IntArray | None:
        rows, energy = objective.places, self.energy.reshape(-1)  # now all rows are known
        if (affine := objective.affine) is None:
            return None
        known = self._seen_cut, self._count, self._above, energy, self._rounding * self._scale
        sizes = np.asarray(self.sizes_of(grid[:-1] + 1), dtype=np.float64)
        some = tuple(array[rows] for array in known)
        return np.asarray(kernels.reaches(grid, sizes, some, (np.array(objective.V), *affine), margin))

    def everything(self) -> IntArray:
        return self.above(0.0)[0]

    def at_most(self, components: Count) -> IntArray:
        return np.minimum(components, self.above(0.0)[0])

    def offers(self, place: int) -> Offers:
        return TopK().offers(self._host_row(place), np.random.default_rng)

    def binned(self, places: IntArray, reach: IntArray) -> Iterator[MagnitudeBins]:
        """Yield the components of these rows by magnitude, some rows at a time (`control.binned`)."""
        _ = self.energy  # now all rows are known
        at_once = min(self._at_once, _COUNTED)
        if not self._by_numba:
            at_once = min(at_once, max(1, _COPIED // self._dim))
        for begin in range(0, len(places), at_once):
            part = np.arange(begin, min(begin + at_once, len(places)))
            vectors, rows = self._rows, places[part]
            if not self._by_numba:
                index = torch.from_numpy(rows).to(vectors.device)
                vectors, rows = vectors.index_select(0, index).cpu().numpy(), np.arange(len(rows))
            bins = MagnitudeBins(part, vectors, rows, reach[part], partial(self._remember, places[part]))
            self._energy[places[part]] = bins.left[0]  # without what subtracting has rounded away
            yield bins
            self._leave_memory()

    def _remember(self, rows: IntArray, k: IntArray, kept: FloatArray, cut: NDArray[Any]) -> None:
        """Take note that k components of each row are above the cut, if it is from 0 on."""
        valid = cut >= 0
        rows = rows[valid]
        self._seen_cut[rows], self._count[rows] = cut[valid], k[valid]
        self._above[rows] = np.maximum(self._energy[rows] - kept[valid], 0.0)
        self._scale[rows] = self._energy[rows]

    # What leaves -------------------------------------------------------------------------------

    def possible(self, amounts: IntArray) -> BoolArray:
        """Return whether each amount, from 0 on, can be sent."""
        return np.asarray(amounts <= self._dim)

    def components(self, amounts: IntArray) -> IntArray:
        """Return k of each sender: a message holds no zeros."""
        if self._counted is not amounts:
            k = np.broadcast_to(amounts, self._shape).reshape(-1)
            if ((k > 0) & ((k != self._count) | self._changed)).any():
                nonzero = self.above(0.0)[0].reshape(-1)
                k = np.minimum(k, nonzero)
            self._counted, self._answer = amounts, k.reshape(self._shape)
        return self._answer

    def nbytes(self, amounts: IntArray) -> IntArray:
        """Return the size of each message, in bytes."""
        return self._least_bytes(self.components(amounts))

    def _least_bytes(self, k: IntArray) -> IntArray:
        return message_bytes(k, self._dim, self._dtype.name) if self._sizes is None else self._sizes[k]

    def sizes(self, amounts: IntArray) -> NDArray[Any]:
        """Return what the cost is a function of."""
        k = self.components(amounts)
        return k if self.counts == "components" else size_in(self.counts, k, self.nbytes(amounts))

    def sizes_of(self, components: IntArray) -> NDArray[Any]:
        """Return the size of messages of so many components; the least where it also depends on others."""
        if self.counts == "components":
            return components
        return size_in(self.counts, components, self._least_bytes(components))

    def least(self, objective: Weighed, reach: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the best amounts of some rows, of compressors that find it themselves."""
        raise TypeError("all amounts of top-k are listed")

    def take(self, amounts: IntArray) -> Outgoing:
        """Return the messages of these amounts; each row keeps b − v."""
        return Outgoing(self, amounts)

    def hand_over(self, amounts: IntArray, weights: Number, total: Vectors) -> None:
        """Move the k largest out of each row and add them, weighted, to `total`."""
        k = self.components(amounts).reshape(-1)
        self._counted = None
        senders = k.nonzero()[0]
        _ = self.energy  # now all rows are known
        if not len(senders):
            return
        k = k[senders]
        cut, last = self._seen_cut[senders], np.full(len(senders), -1, dtype=np.int64)
        by_threshold = self._count[senders] == k
        whole = senders[by_threshold]
        self._energy[whole] = np.maximum(self._energy[whole] - self._above[whole], 0.0)
        self._count[whole] = 0
        self._above[whole] = 0.0
        select = (~by_threshold).nonzero()[0]
        if len(select):
            for part in self._parts(select):
                cut[part], last[part] = self._find_cuts(senders[part], k[part])
        each = np.broadcast_to(weights, self._shape).reshape(-1)[senders]
        for part in self._parts(np.arange(len(senders))):
            self._passes.move(self._rows, senders[part], cut[part], last[part], each[part], total)
        if len(select):
            self._measure(senders[select])

    # Memory ------------------------------------------------------------------------------------

    def knowledge(self) -> FloatArray:
        """Return what is known of the rows, (5, N): a resumed run continues with it, to the last bit."""
        _ = self.energy
        return np.stack([self._seen_cut.astype(float), self._count, self._above, self._energy, self._scale])

    def recall(self, knowledge: FloatArray) -> None:
        """Continue with what `knowledge` returned for these rows."""
        self._seen_cut[:], self._count[:], self._above[:], self._energy[:], self._scale[:] = knowledge
        self._changed[:] = False

    def _find_cuts(self, rows: IntArray, k: IntArray) -> tuple[NDArray[Any], NDArray[Any]]:
        if not self._by_numba:
            return torch_kernels.find_cuts(self._rows, rows, k)
        found: tuple[NDArray[Any], NDArray[Any]] = kernels.find_cuts(
            self._rows, self._bits(self._rows), self._shift, rows, k
        )
        return found

    def _bits(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.view(np.uint64 if self._dtype.itemsize == 8 else np.uint32)

    def _host_row(self, place: int) -> NDArray[Any]:
        row = self._rows[place]
        return row if isinstance(row, np.ndarray) else np.asarray(row.cpu().numpy())

    def _measure(self, rows: IntArray) -> None:
        sums = self._count, self._above, self._energy
        for part in self._parts(rows):
            self._passes.measure(self._rows, part, self._cut, *sums)
        self._seen_cut[rows] = self._cut[rows]
        self._scale[rows] = self._energy[rows]
        self._changed[rows] = False

    def _parts(self, rows: IntArray) -> Iterator[IntArray]:
        """Yield a few rows after another if they come from a file, else all of them."""
        for begin in range(0, len(rows), self._at_once):
            yield rows[begin : begin + self._at_once]
            self._leave_memory()

    def _leave_memory(self) -> None:
        if self._mapped:
            leave_memory(self._rows)

    def _unsure(self, level: FloatArray) -> IntArray:
        """Return the rows to be read, since their excess Σ (b² − cut²)₊ may be as much as `level`."""
        known = self._seen_cut, self._count, self._above, self._energy, self._scale, self._changed
        return np.asarray(kernels.unsure(self._cut, *known, level, self._rounding))
