"""Top-k sparsification: the k components of largest magnitude, exact on ties (Section IV-E)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import Message, message_bytes


@dataclass(frozen=True)
class TopK:
    """Send the k largest components as they are; the amount is k, up to the number of non-zero ones."""

    exact: ClassVar[bool] = True

    def gains(self, vector: FloatArray) -> FloatArray:
        return np.square(vector, dtype=np.float64)

    def nbytes(self, count: Count, dim: int, dtype: np.dtype[np.floating]) -> IntArray:
        return message_bytes(count, dim, np.dtype(dtype).name)

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        components, kept = largest_first_offers(self.gains(vector), np.square(vector, dtype=np.float64))
        return Offers(components, kept, self.nbytes(components, len(vector), vector.dtype))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        k = min(amount, int(np.count_nonzero(vector)))  # a message holds no zeros
        indices = np.flatnonzero(topk_mask(vector, k))
        return Message(len(vector), indices, vector[indices], np.dtype(vector.dtype).name)


def largest_first_offers(gains: FloatArray, squares: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return k = 0, 1, … and ‖b − v‖² for each, from what each component gains and its square."""
    order = np.argsort(-gains, kind="stable")
    count = int(np.count_nonzero(gains > 0))
    sent, rest = order[:count], order[count:]
    kept = kept_along(squares[sent], squares[sent] - gains[sent]) + float(squares[rest].sum())
    return np.arange(count + 1), kept


def kept_along(squares: FloatArray, lost: FloatArray) -> FloatArray:
    """Return what stays behind of components after none, one, two, … of them are sent, in this order.

    What is not sent is summed from the last up: taking what was sent off the total would lose the small
    components beside a large one.

    Args:
        squares: b² of each, (K,).
        lost: what stays of each that is sent, (b − v)².
    """
    unsent = np.cumsum(squares[::-1])[::-1]
    return np.asarray(np.append(unsent, 0.0) + np.append(0.0, np.cumsum(lost)))


def topk_mask(vectors: FloatArray, num_sent: Count) -> BoolArray:
    """Return where the k largest |b_j| are; among equals the lowest index wins, so exactly k are set.

    The k-th largest magnitude is a threshold found by selection, not by sorting: everything above it is
    in, and of those equal to it the first ones until k is reached.

    Args:
        vectors: b, (..., D).
        num_sent: k, (...), with 0 ≤ k ≤ D.
    """
    vectors = np.asarray(vectors)
    dim = vectors.shape[-1]
    k = np.broadcast_to(num_sent, vectors.shape[:-1])
    rows = np.abs(vectors).reshape(-1, dim)
    mask = np.zeros(rows.shape, dtype=np.bool_)
    for row, chosen, count in zip(rows, mask, k.reshape(-1), strict=True):
        if count <= 0:
            continue
        cut = np.partition(row, dim - count)[dim - count]
        chosen[:] = row > cut
        ties = np.flatnonzero(row == cut)
        chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return mask.reshape(vectors.shape)
