"""Top-k with values of half the size: what rounding drops stays in the residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import Count, FloatArray, IntArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import Message, message_bytes
from flexfl.compress.topk import largest_first_offers, topk_mask

_LARGEST = {"float16": 65504.0, "bfloat16": float(np.uint32(0x7F7F0000).view(np.float32))}


@dataclass(frozen=True)
class RoundedTopK:
    """Send the k largest components, each rounded to `values`; the amount is k.

    A value beyond the largest such number is sent as that one, and the rest of it later. A component that
    rounds to zero is not sent. With r the rounded value, a component takes b² − (b − r)² = r·(2b − r) off
    what stays behind, which grows with |b|: the largest are still the best to send.
    """

    exact: ClassVar[bool] = False
    values: Literal["float16", "bfloat16"] = "float16"

    def gains(self, vector: FloatArray) -> FloatArray:
        r = rounded(vector, self.values).astype(np.float64)
        return np.asarray(r * (2.0 * vector.astype(np.float64) - r))

    def nbytes(self, count: Count, dim: int, dtype: np.dtype[np.floating]) -> IntArray:
        return message_bytes(count, dim, self.values)

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        components, kept = largest_first_offers(self.gains(vector), np.square(vector, dtype=np.float64))
        return Offers(components, kept, self.nbytes(components, len(vector), vector.dtype))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        values = rounded(vector, self.values)
        sendable = np.where(values != 0, vector, 0)
        indices = np.flatnonzero(topk_mask(sendable, min(amount, int(np.count_nonzero(sendable)))))
        return Message(len(vector), indices, values[indices], self.values)


def rounded(values: NDArray[Any], form: str) -> NDArray[Any]:
    """Return the nearest numbers of `form` (ties to even), in the type of `values`; never infinite.

    >>> rounded(np.array([1.0001, 1e9, 1e-12]), "float16")
    array([1.0000e+00, 6.5504e+04, 0.0000e+00])
    """
    within = np.clip(values, -_LARGEST[form], _LARGEST[form])
    if form == "float16":
        return np.asarray(within.astype(np.float16).astype(values.dtype))
    # bfloat16 is the upper half of a float32. Of a float64 the first rounding is to odd, so that two
    # roundings give what one would.
    single = within.astype(np.float32)
    bits = single.view(np.uint32)
    if values.dtype == np.float64:
        inexact = single.astype(np.float64) != within
        toward_zero = np.where(np.abs(single.astype(np.float64)) > np.abs(within), bits - np.uint32(1), bits)
        bits = np.where(inexact, toward_zero | np.uint32(1), bits).astype(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.asarray(upper).view(np.float32).astype(values.dtype)
