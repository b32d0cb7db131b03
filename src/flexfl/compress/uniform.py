"""Uniform quantisation: the k largest components, each as its sign and one of L even levels, entropy-coded.

Like QSGD (Alistarh et al., NeurIPS 2017), with the largest magnitude as the scale. With M = max |b_j| and
s = M/L, a component arrives as a multiple of s: the nearest one, or the one below or above at random, so that
the mean over the draws is b_j. A component that becomes zero is not sent; what rounding drops stays in the
residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.compress.base import Offers, Random
from flexfl.compress.message import (
    HEADER_BYTES,
    Message,
    even_levels,
    levels_bytes,
    log_factorials,
    subset_bytes,
    table_bytes,
)
from flexfl.compress.topk import kept_along, topk_mask
from flexfl.parameters import Whole

_NEAR = 1e-4
"""Bytes: sums of so many logarithms are not relied on where they are as near to a whole number."""


@dataclass(frozen=True)
class Uniform:
    """Send the k largest components with b bits each: a sign, and one of L = 2^(b−1) multiples of M/L.

    The amount is k, up to the number of components that do not become zero.

    Attributes:
        bits: b.
        rounding: to the nearest level, or at random to the one below or above ("stochastic").
    """

    bits: Annotated[int, Whole(1, "give the bits of a value, 1 to 8", most=8)] = 4
    rounding: Literal["nearest", "stochastic"] = "nearest"

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        multiples, levels = self._quantised(vector, random)
        squares = np.square(vector, dtype=np.float64)
        sent = np.flatnonzero(multiples)
        sent = sent[np.argsort(-np.abs(vector[sent]), kind="stable")]
        codes = multiples[sent] - 1
        lost = np.square(np.abs(vector[sent]) - levels[codes].astype(np.float64))
        kept = kept_along(squares[sent], lost) + float(squares[multiples == 0].sum())
        return Offers(np.arange(len(sent) + 1), kept, _sizes(codes, levels, len(vector)))

    def sendable(self, vector: FloatArray, random: Random) -> int:
        """Return how many components do not become zero."""
        return int(np.count_nonzero(self._quantised(vector, random)[0]))

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        multiples, levels = self._quantised(vector, random)
        sendable = np.where(multiples > 0, vector, 0)
        places = np.flatnonzero(topk_mask(sendable, min(amount, int(np.count_nonzero(sendable)))))
        codes = multiples[places] - 1
        return Message.of_levels(len(vector), places, vector[places] < 0, codes, levels, "even")

    def _quantised(self, vector: FloatArray, random: Random) -> tuple[IntArray, FloatArray]:
        """Return which multiple of s each magnitude becomes, (D,), and s, 2s, …, M."""
        size, number = np.abs(vector), 1 << (self.bits - 1)
        step = max(size.max() / size.dtype.type(number), np.finfo(size.dtype).smallest_subnormal)
        ratio = size.astype(np.float64) / float(step)
        if self.rounding == "stochastic":
            found = np.floor(ratio + random().random(len(ratio)))
        else:
            found = np.rint(ratio)
        return np.minimum(found, number).astype(np.int64), even_levels(step, number)


def _sizes(codes: IntArray, levels: FloatArray, dim: int) -> IntArray:
    """Return the sizes of the messages of the first 0, 1, 2, … of these codes: `levels_bytes` of all.

    One more of level c multiplies n_c! by n_c, so that Σ log2 n_c! of all of them is one running sum.
    """
    number, table = len(levels), table_bytes(len(levels), "even", levels.dtype)
    k = np.arange(1, len(codes) + 1)
    if number == 1:
        return np.append(0, levels_bytes(k[:, None], dim, table))
    by_level = np.argsort(codes.astype(np.uint8), kind="stable")  # of bytes: much faster
    ends = np.cumsum(np.bincount(codes, minlength=number))
    starts = np.append(0, ends[:-1])
    rank = np.empty(len(codes), dtype=np.int64)  # how many have that level up to each
    rank[by_level] = k - starts[codes[by_level]]
    logs = log_factorials(len(codes) + number)
    whole = (logs[k + number - 1] - logs[number - 1] - np.cumsum(np.log2(rank))) / 8 - 1e-9
    order = np.ceil(whole).astype(np.int64) + 1
    sizes = HEADER_BYTES + table + subset_bytes(k, dim) + (k + 7) // 8 + order
    near = np.flatnonzero(np.abs(whole - np.rint(whole)) < _NEAR)
    places = [by_level[start:end] for start, end in zip(starts, ends, strict=True)]
    cells = np.stack([np.searchsorted(found, near, side="right") for found in places], axis=-1)
    sizes[near] = levels_bytes(cells, dim, table)
    return np.append(0, sizes)
