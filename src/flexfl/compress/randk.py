"""Rand-k sparsification: k components drawn at random, which says nothing about their sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import Message, message_bytes
from flexfl.compress.topk import kept_along


@dataclass(frozen=True)
class RandK:
    """Send k of the components that are not zero, all as likely; the amount is k.

    All amounts follow one permutation, so that a larger one sends what a smaller one does, and more.

    Attributes:
        unbiased: send values times n/k, where n components are not zero (d, of a dense vector), so that
            the mean of v over the draws is b; the residual then holds the difference. Subnormal numbers,
            whose multiples are not numbers, count as zero.
    """

    unbiased: bool = False

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        drawn = self._drawn(vector, random)
        squares, k = np.square(vector[drawn], dtype=np.float64), np.arange(len(drawn) + 1)
        never = np.delete(vector, drawn)
        kept = kept_along(squares, np.zeros_like(squares)) + float(np.square(never, dtype=np.float64).sum())
        if self.unbiased:
            scale = len(drawn) / np.maximum(k, 1)
            kept += np.append(0.0, np.cumsum(squares)) * (scale - 1.0) ** 2
        return Offers(k, kept, message_bytes(k, len(vector), vector.dtype.name))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        drawn = self._drawn(vector, random)
        indices = np.sort(drawn[:amount])
        values = vector[indices]
        if self.unbiased:
            values = values * vector.dtype.type(len(drawn) / max(len(indices), 1))
        return Message(len(vector), indices, values, vector.dtype.name)

    def _drawn(self, vector: FloatArray, random: Random) -> IntArray:
        """Return the components that may be sent, in the order in which they are."""
        least = np.finfo(vector.dtype).tiny if self.unbiased else 0.0
        return random().permutation(np.flatnonzero((vector != 0) & (np.abs(vector) >= least)))
