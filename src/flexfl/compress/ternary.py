"""Sparse ternary compression (STC): the k largest components, each as its sign times their mean magnitude.

Sattler et al., "Robust and Communication-Efficient Federated Learning from Non-IID Data", IEEE TNNLS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import Message, levels_bytes, table_bytes
from flexfl.compress.topk import topk_mask


@dataclass(frozen=True)
class Ternary:
    """Send the k largest components as ±S_k/k, with S_k the sum of their magnitudes; the amount is k.

    That takes S_k²/k off ‖b‖².
    """

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        size = np.sort(np.abs(vector[vector != 0]))[::-1].astype(np.float64)
        k = np.arange(1, len(size) + 1)
        S, Q = np.cumsum(size), np.cumsum(np.square(size))
        m = (S / k).astype(vector.dtype).astype(np.float64)
        # What is not sent is summed from the smallest up: beside a large component small ones would be lost.
        rest = np.append(np.cumsum(np.square(size)[::-1])[::-1], 0.0)
        kept = rest + np.append(0.0, np.maximum(Q - 2 * m * S + k * m * m, 0.0))
        components = np.arange(len(size) + 1)
        table = table_bytes(1, "exact", vector.dtype)
        return Offers(components, kept, levels_bytes(components[:, None], len(vector), table))

    def sendable(self, vector: FloatArray, random: Random) -> int:
        """Return how many components are not zero."""
        return int(np.count_nonzero(vector))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        k = min(amount, int(np.count_nonzero(vector)))  # a message holds no zeros
        indices = np.flatnonzero(topk_mask(vector, k))
        mean = np.abs(vector[indices]).astype(np.float64).mean().astype(vector.dtype)
        codes = np.zeros(k, dtype=np.int64)
        return Message.of_levels(len(vector), indices, vector[indices] < 0, codes, np.array([mean]))
