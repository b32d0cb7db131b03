"""Top-k sparsification: the k components of largest magnitude, exact on ties."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray, Number, spread


def topk_mask(vectors: FloatArray, num_sent: Count) -> BoolArray:
    """Where the k largest |b_j| are; among equals the lowest index wins, so exactly k are set.

    vectors is (..., D), num_sent (...) with 0 ≤ k ≤ D. The k-th largest magnitude is a
    threshold found by selection, not by sorting: everything above it is in, and of those
    equal to it the first ones until k is reached.
    """
    vectors = np.asarray(vectors)
    dim = vectors.shape[-1]
    k = spread(num_sent, vectors.shape[:-1])
    rows = np.abs(vectors).reshape(-1, dim)
    mask = np.zeros(rows.shape, dtype=np.bool_)
    for row, chosen, count in zip(rows, mask, k.reshape(-1), strict=True):
        if count <= 0:
            continue
        cut = np.partition(row, dim - count)[dim - count]
        chosen[:] = row > cut
        ties = np.flatnonzero(row == cut)
        chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return mask.reshape(vectors.shape)


def topk(vectors: FloatArray, num_sent: Count) -> FloatArray:
    """v: the k largest components of b at their places, zero elsewhere (Section IV-E)."""
    return np.where(topk_mask(vectors, num_sent), vectors, np.zeros((), dtype=np.asarray(vectors).dtype))


class DenseMagnitudes:
    """`Magnitudes` of an array, by plain NumPy in float64."""

    def __init__(self, vectors: FloatArray) -> None:
        self._magnitudes = np.abs(np.asarray(vectors, dtype=np.float64))

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        chosen = self._magnitudes > np.asarray(cut)[..., None]
        counts = np.asarray(np.count_nonzero(chosen, axis=-1))
        return counts, np.asarray(np.sum(self._magnitudes**2, axis=-1, where=chosen))

    def energies(self) -> FloatArray:
        squares = np.sort(self._magnitudes**2, axis=-1)[..., ::-1]
        start = np.zeros((*squares.shape[:-1], 1))
        return np.concatenate([start, np.cumsum(squares, axis=-1)], axis=-1)
