"""Fused ReLU and max pooling, forward and backward, for images with channels last.

Separately they pass over the output of a convolution six times; fused, three times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from numpy.typing import NDArray
from torch import Tensor, nn

Images = NDArray[Any]
"""(n, height, width, channels)"""


class Pool:
    """Max pooling, with the ReLU before it if there is one."""

    def __init__(self, pool: nn.MaxPool2d, *, relu: bool) -> None:
        self._pool, self._relu = pool, relu
        self._height, self._width = _both_axes(pool.kernel_size)

    @staticmethod
    def supports(pool: nn.MaxPool2d) -> bool:
        """Return whether this class can replace `pool`: adjacent windows, no padding, no dilation."""
        given = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
        window, stride, padding, dilation = (_both_axes(value) for value in given)
        plain = len(window) == 2 and stride == window and padding == (0, 0) and dilation == (1, 1)
        return plain and not pool.ceil_mode and not pool.return_indices

    def forward(self, z: Tensor) -> Tensor:
        """Return the largest value of each window, at least 0 with a ReLU."""
        if z.ndim != 4 or z.device.type != "cpu":
            plain: Tensor = self._pool(torch.relu(z) if self._relu else z)
            return plain
        n, channels, height, width = z.shape
        shape = (n, channels, height // self._height, width // self._width)
        out = torch.empty(shape, dtype=z.dtype, memory_format=torch.channels_last)
        _forward(_images(z), self._height, self._width, self._relu, _images(out))
        return out

    def backward(self, g: Tensor, z: Tensor, out: Tensor) -> Tensor:
        """Overwrite z with the gradient with respect to z and return it.

        If several values of a window are the largest, the first one has the gradient, as in torch.

        Args:
            g: Gradient with respect to the output.
            z: The input of `forward`.
            out: The output of `forward`.
        """
        z = z.contiguous(memory_format=torch.channels_last)
        g = g.contiguous(memory_format=torch.channels_last)
        _backward(_images(g), _images(out), self._height, self._width, self._relu, _images(z))
        return z


def _both_axes(given: Any) -> tuple[int, ...]:
    """Return a setting for both axes; a single number stands for both."""
    listed = tuple(int(value) for value in np.ravel(given))
    return listed * 2 if len(listed) == 1 else listed


def _images(x: Tensor) -> Images:
    images: Images = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).numpy()
    return images


@njit(parallel=True, cache=True)
def _forward(z: Images, height: int, width: int, relu: bool, out: Images) -> None:
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
def _backward(g: Images, out: Images, height: int, width: int, relu: bool, z: Images) -> None:
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
