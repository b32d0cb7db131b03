"""The passes of `models.pooling` in NumPy, for installs without numba: the same bits as `pooling_kernels`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = NDArray[Any]
"""(n, height, width, channels)"""


def forward(z: Images, height: int, width: int, relu: bool, out: Images) -> None:
    """Write the largest value of each window, at least 0 with a ReLU, into `out`."""
    out[...] = 0.0 if relu else -np.inf
    for given in _places(z, height, width, out):
        np.copyto(out, given, where=(given > out) | np.isnan(given))  # NaN is kept


def backward(g: Images, out: Images, height: int, width: int, relu: bool, z: Images) -> None:
    """Overwrite z, the input of `forward`, with the gradient with respect to z; `out` is its output."""
    rest = np.where(out > 0.0, g, g.dtype.type(0)) if relu else g.copy()
    z[:, out.shape[1] * height :] = 0.0
    z[:, :, out.shape[2] * width :] = 0.0
    for into in _places(z, height, width, out):
        hit = into == out
        into[...] = np.where(hit, rest, g.dtype.type(0))
        rest[hit] = 0.0


def _places(z: Images, height: int, width: int, out: Images) -> Iterator[Images]:
    """Yield a view of z for each place in a window: that place of all windows, in the shape of `out`."""
    rows, columns = out.shape[1] * height, out.shape[2] * width
    for dy in range(height):
        for dx in range(width):
            yield z[:, dy:rows:height, dx:columns:width]
