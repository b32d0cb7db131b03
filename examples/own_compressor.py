"""A compressor of one's own: the k largest components, all sent with one magnitude.

    flexfl run quickstart --set compress.uplink.kind=examples.own_compressor:OneMagnitude

What is sent of a component is its sign and a magnitude s that all k share, so that a value takes one bit.
The best s is the mean of the k magnitudes, and what the message takes off ‖b‖² is k·s². The rest stays in
the residual, as with every compressor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.compress import Message, Offers, Random, levels_bytes, table_bytes, topk_mask
from flexfl.parameters import Whole


@dataclass(frozen=True)
class OneMagnitude:
    """Send k = step, 2·step, 3·step, … of the largest components, each as ±s."""

    step: Annotated[int, Whole(1, "how many more components each amount sends")] = 20

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        """Tell, for each amount, how many components it sends, what stays behind, and its size."""
        size = np.sort(np.abs(vector[vector != 0]))[::-1].astype(np.float64)
        k = np.append(0, np.minimum(np.arange(self.step, size.size + self.step, self.step), size.size))
        total = np.append(0.0, np.cumsum(size))[k]  # Σ|b| over the k largest
        energy = float(np.square(vector, dtype=np.float64).sum())
        kept = np.maximum(0.0, energy - total**2 / np.maximum(k, 1))
        table = table_bytes(1, "exact", vector.dtype)  # the one magnitude
        return Offers(k, kept, levels_bytes(k[:, None], len(vector), table))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        """Make the message of that amount."""
        k = min(amount * self.step, int(np.count_nonzero(vector)))
        places = np.flatnonzero(topk_mask(vector, k))
        scale = vector.dtype.type(np.abs(vector[places], dtype=np.float64).mean())
        codes = np.zeros(k, dtype=np.int64)  # all values have the first level
        return Message.of_levels(len(vector), places, vector[places] < 0, codes, np.array([scale]))
