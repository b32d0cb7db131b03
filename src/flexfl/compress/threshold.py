"""Send what is large enough, as it is: the cut is given, and how many components that is comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from flexfl.arrays import BoolArray, FloatArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import Message, message_bytes
from flexfl.parameters import Rule, above_zero, share

_Cut = Annotated[float | None, Rule("must be > 0 and finite", above_zero, "or give relative", optional=True)]
_Relative = Annotated[float | None, Rule("must be in (0, 1]", share, "or give cut", optional=True)]


@dataclass(frozen=True)
class Threshold:
    """Send all components with |b_j| ≥ cut (amount 1), or nothing.

    Attributes:
        cut: the smallest magnitude that is sent.
        relative: the same as a share of the largest magnitude, instead.
    """

    cut: _Cut = None
    relative: _Relative = None

    def __post_init__(self) -> None:
        if (self.cut is None) == (self.relative is None):
            raise ValueError("needs either cut or relative")

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        sent = self._sent(vector)
        squares = np.square(vector, dtype=np.float64)
        k = np.array([0, np.count_nonzero(sent)] if sent.any() else [0])
        kept = np.array([squares.sum(), squares[~sent].sum()])[: len(k)]
        return Offers(k, kept, message_bytes(k, len(vector), vector.dtype.name))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        indices = np.flatnonzero(self._sent(vector))
        return Message(len(vector), indices, vector[indices], vector.dtype.name)

    def _sent(self, vector: FloatArray) -> BoolArray:
        size = np.abs(vector).astype(np.float64)
        cut = self.cut or (self.relative or 0.0) * float(size.max())
        return np.asarray((size >= cut) & (size > 0))
