"""The compiled passes of `models.pooling`; `plain_pooling` has the same ones without numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Images = NDArray[Any]
"""(n, height, width, channels)"""


@njit(parallel=True, cache=True)
def forward(z: Images, height: int, width: int, relu: bool, out: Images) -> None:
    """Write the largest value of each window, at least 0 with a ReLU, into `out`."""
    for n in prange(len(z)):
        for y in range(out.shape[1]):
            for x in range(out.shape[2]):
                best = out[n, y, x]
                best[:] = 0.0 if relu else -np.inf
                for dy in range(height):
                    for dx in range(width):
                        given = z[n, y * height + dy, x * width + dx]
                        for c in range(len(best)):
                            # NaN is kept.
                            larger = given[c] > best[c] or given[c] != given[c]
                            best[c] = given[c] if larger else best[c]


@njit(parallel=True, cache=True)
def backward(g: Images, out: Images, height: int, width: int, relu: bool, z: Images) -> None:
    """Overwrite z, the input of `forward`, with the gradient with respect to z; `out` is its output."""
    for n in prange(len(z)):
        rest = np.empty(z.shape[3], z.dtype)
        z[n, out.shape[1] * height :] = 0.0
        z[n, :, out.shape[2] * width :] = 0.0
        for y in range(out.shape[1]):
            for x in range(out.shape[2]):
                best, given = out[n, y, x], g[n, y, x]
                for c in range(len(rest)):
                    rest[c] = given[c] if best[c] > 0.0 or not relu else 0.0
                for dy in range(height):
                    for dx in range(width):
                        into = z[n, y * height + dy, x * width + dx]
                        for c in range(len(rest)):
                            hit = into[c] == best[c]
                            into[c] = rest[c] if hit else 0.0
                            rest[c] = 0.0 if hit else rest[c]
