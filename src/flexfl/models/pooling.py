"""Fused ReLU and max pooling, forward and backward, for images with channels last.

Separately they pass over the output of a convolution six times; fused, three times.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flexfl.extras import compiled_or_plain

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
        _passes().forward(_images(z), self._height, self._width, self._relu, _images(out))
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
        _passes().backward(_images(g), _images(out), self._height, self._width, self._relu, _images(z))
        return z


def _both_axes(given: Any) -> tuple[int, ...]:
    """Return a setting for both axes; a single number stands for both."""
    listed = tuple(int(value) for value in np.ravel(given))
    return listed * 2 if len(listed) == 1 else listed


def _images(x: Tensor) -> Images:
    images: Images = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).numpy()
    return images


def _passes() -> ModuleType:
    return compiled_or_plain("flexfl.models.pooling_kernels", "flexfl.models.plain_pooling")
