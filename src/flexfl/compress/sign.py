"""Signs with a scale: all components, each as its sign times their mean magnitude (EF-signSGD).

Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import Message, levels_bytes, table_bytes


@dataclass(frozen=True)
class Sign:
    """Send every component that is not zero as ±‖b‖₁/d (amount 1), or nothing."""

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        size = np.abs(vector[vector != 0]).astype(np.float64)
        k = np.array([0, len(size)] if len(size) else [0])
        kept = np.array([np.square(size).sum(), np.square(size - float(_scale(vector))).sum()])[: len(k)]
        table = table_bytes(1, "exact", vector.dtype)
        return Offers(k, kept, levels_bytes(k[:, None], len(vector), table))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        indices = np.flatnonzero(vector)
        codes = np.zeros(len(indices), dtype=np.int64)
        levels = np.array([_scale(vector)])
        return Message.of_levels(len(vector), indices, vector[indices] < 0, codes, levels)


def _scale(vector: FloatArray) -> np.floating:
    """Return ‖b‖₁/d, or the smallest number > 0 where that would become zero."""
    mean = vector.dtype.type(np.abs(vector).astype(np.float64).mean())
    return max(mean, np.finfo(vector.dtype).smallest_subnormal)
