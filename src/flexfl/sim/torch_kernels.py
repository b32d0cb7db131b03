"""The passes of `kernels` by torch, for residuals that lie on a GPU.

Same names, same arguments, same meaning: the residuals and what enters them are tensors of one
device; rows, thresholds and sums are NumPy arrays of the host. Sums are in float64 where the
device has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

_AT_ONCE = 2**24
"""Components that are measured at once: temporaries stay within some hundred megabytes."""


def add_and_measure(
    residual: Tensor,
    rows: Array,
    start: int,
    step: Array,
    grads: Tensor,
    cut: Array,
    count: Array,
    above: Array,
    total: Array,
) -> None:
    """residual[rows[i], start:start+P] += step[i]·grads[i], and the sums of `measure` over these columns."""
    index = _on(residual, rows)
    columns = residual.narrow(1, start, grads.shape[1])
    new = columns.index_select(0, index) + _on(residual, step)[:, None] * grads
    columns.index_copy_(0, index, new)
    sums = _sums(new, _on(residual, cut[rows]))
    count[rows] += sums[0]
    above[rows] += sums[1]
    total[rows] += sums[2]


def add_outer_and_measure(
    residual: Tensor, rows: Array, start: int, step: Array, x: Tensor, g: Tensor, *sums: Array
) -> None:
    """As above for gradients gᵀ·x given as x (M, K, in) and g (M, K, out)."""
    grads = torch.bmm(g.transpose(1, 2), x).reshape(len(rows), -1)
    add_and_measure(residual, rows, start, step, grads, *sums)


def add_over_samples_and_measure(
    residual: Tensor, rows: Array, start: int, step: Array, g: Tensor, *sums: Array
) -> None:
    """As above for gradients Σ g over the samples, given as g (M, K, P)."""
    add_and_measure(residual, rows, start, step, g.sum(dim=1), *sums)


def measure(residual: Tensor, rows: Array, cut: Array, count: Array, above: Array, total: Array) -> None:
    """For each of `rows`: #{|b| > cut}, the sum of their squares, and the sum of all squares."""
    at_once = max(1, _AT_ONCE // residual.shape[1])
    for begin in range(0, len(rows), at_once):
        part = rows[begin : begin + at_once]
        vectors = residual.index_select(0, _on(residual, part))
        count[part], above[part], total[part] = _sums(vectors, _on(residual, cut[part]))


def find_cuts(residual: Tensor, rows: Array, k: Array) -> tuple[Array, Array]:
    """For each of `rows`, the k-th largest magnitude and the last index at which it still counts."""
    cut = np.zeros(len(rows), dtype=_numpy_dtype(residual))
    last = np.full(len(rows), -1, dtype=np.int64)
    for i, (row, wanted) in enumerate(zip(rows.tolist(), k.tolist(), strict=True)):
        magnitudes = residual[row].abs()
        limit = torch.topk(magnitudes, wanted).values[-1]
        missing = wanted - int((magnitudes > limit).sum())
        cut[i] = float(limit)
        last[i] = int((magnitudes == limit).nonzero()[missing - 1])
    return cut, last


def move(residual: Tensor, rows: Array, cut: Array, last: Array, weights: Array, total: Tensor) -> None:
    """total (D,) += Σ weights[i]·v_i, where v_i is what row i sends; what is sent leaves the row."""
    exact = _sum_dtype(residual)
    place = torch.arange(residual.shape[1], device=residual.device)
    for row, limit, until, weight in zip(rows.tolist(), cut, last.tolist(), weights.tolist(), strict=True):
        vector = residual[row]
        size = vector.abs()
        chosen = size > float(limit)
        if until >= 0:
            chosen |= (size == float(limit)) & (place <= until)
        sent = torch.where(chosen, vector, 0)
        total.copy_(total.to(exact) + weight * sent.to(exact))
        vector.sub_(sent)


def _sums(vectors: Tensor, cut: Tensor) -> tuple[Array, Array, Array]:
    squares = vectors.to(_sum_dtype(vectors)).square()
    above = vectors.abs() > cut[:, None]
    total = squares.sum(dim=1)
    return (
        above.sum(dim=1).cpu().numpy(),
        torch.where(above, squares, 0).sum(dim=1).cpu().numpy(),
        total.cpu().numpy(),
    )


def _on(residual: Tensor, values: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(residual.device)


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.device.type == "mps" else torch.float64  # mps has no float64


def _numpy_dtype(tensor: Tensor) -> np.dtype[Any]:
    return np.dtype(str(tensor.dtype).removeprefix("torch."))
