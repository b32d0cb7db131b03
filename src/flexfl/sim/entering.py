"""What clients have computed enters their residuals, parameter by parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from flexfl.arrays import FloatArray, IntArray
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.pieces import Outer, OverSamples, Pieces
from flexfl.sim.residuals import Residuals
from flexfl.sim.vectors import numpy_dtype

_PIECE_BYTES = 16 * 2**20


def enter(into: Residuals, model: FlatModel, rows: IntArray, step: FloatArray, pieces: Pieces) -> None:
    """b[rows] += step·g (or Δ), with the products of linear layers added as they are made.

    Args:
        into: b, (N, D).
        model: whose parameters these are.
        rows: the clients, (M,).
        step: the factor of each, (M,).
        pieces: g or Δ by parameter.
    """
    factor = step.astype(numpy_dtype(into.vectors))
    by_numba = isinstance(into.vectors, np.ndarray)

    def given(tensor: Tensor) -> Any:
        """As the kernels take it."""
        return tensor.contiguous().numpy() if by_numba else tensor

    into.entering(rows)
    for name, place in zip(model.names, model.slices, strict=True):
        piece = pieces[name]
        if isinstance(piece, Outer):
            into.add_outer(rows, place.start, factor, given(piece.x), given(piece.g))
            continue
        if isinstance(piece, OverSamples):
            into.add_over_samples(rows, place.start, factor, given(piece.g))
            continue
        at_once = max(1, _PIECE_BYTES // ((place.stop - place.start) * factor.itemsize))
        for begin in range(0, len(rows), at_once):
            part = slice(begin, begin + at_once)
            grads = piece.dense(part)
            into.add(rows[part], place.start, factor[part], given(grads.reshape(len(grads), -1)))
    into.entered(rows)
