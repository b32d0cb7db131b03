"""Scaling of pixels to network input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.errors import Fault, InputError


@dataclass(frozen=True)
class PixelScaling:
    """Computes (pixel/255 − mean) / deviation for each channel, in float32."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        if len(self.mean) == 1:
            return self._scale(pixels, 0)
        if pixels.ndim != 4 or pixels.shape[1] != len(self.mean):
            rule = f"must hold images of shape ({len(self.mean)}, height, width)"
            raise InputError([Fault("data.path", rule, pixels.shape[1:], "move the channels to the front")])
        out = np.empty(pixels.shape, dtype=np.float32)
        for channel in range(len(self.mean)):
            out[:, channel] = self._scale(pixels[:, channel], channel)
        return out

    def _scale(self, pixels: NDArray[Any], channel: int) -> NDArray[np.float32]:
        mean, deviation = np.float32(self.mean[channel]), np.float32(self.deviation[channel])
        if pixels.dtype == np.uint8:  # compute the 256 values once, then look them up
            table = (np.arange(256, dtype=np.float32) / np.float32(255) - mean) / deviation
            return np.take(table, pixels)
        return np.asarray((pixels.astype(np.float32) / np.float32(255) - mean) / deviation)


FASHION = PixelScaling((0.1307,), (0.3081,))
CIFAR10 = PixelScaling((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
