"""What is sent: the values of some components, and how many bytes that takes before it is coded.

`wire` gives a message its byte form; its length is what `message_bytes` returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import Count, FloatArray, IntArray

HEADER_BYTES = 20
VALUE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one value, by its form."""
_LARGEST_TABLE = 1 << 20


def subset_bytes(count: Count, dim: int) -> IntArray:
    """Return the length of the code of `count` of `dim` places: log2 of the binomial, and a byte to end with.

    Choices that leave nothing to say, none or all, take no bytes.
    """
    return _subset_size(count, dim) if isinstance(count, int) else _subset_sizes(np.asarray(count), dim)


@lru_cache(maxsize=1024)
def _subset_size(count: int, dim: int) -> IntArray:
    return _subset_sizes(np.asarray(count), dim)


def _subset_sizes(count: IntArray, dim: int) -> IntArray:
    from scipy.special import gammaln  # it takes a while to import: not for a command that sends nothing

    k = count.astype(np.int64)
    bits = (math.lgamma(dim + 1.0) - gammaln(k + 1.0) - gammaln(dim - k + 1.0)) / math.log(2.0)
    return np.where((k > 0) & (k < dim), np.ceil(bits / 8 - 1e-9).astype(np.int64) + 1, 0)


def message_bytes(count: Count, dim: int, form: str) -> IntArray:
    """Return how many bytes a message of `count` components takes; nothing takes none.

    Args:
        count: k, of any shape.
        dim: D.
        form: of the values, a key of `VALUE_BYTES`.
    """
    k = np.asarray(count)
    return _size_table(dim, form)[k] if dim <= _LARGEST_TABLE else _sizes(k, dim, form)


@lru_cache(maxsize=8)
def _size_table(dim: int, form: str) -> IntArray:
    """Return the sizes for every k: an engine asks in every iteration, and the binomial takes its time."""
    return _sizes(np.arange(dim + 1), dim, form)


def _sizes(k: IntArray, dim: int, form: str) -> IntArray:
    value = VALUE_BYTES[form]
    return np.where(k > 0, HEADER_BYTES + np.minimum(subset_bytes(k, dim) + k * value, dim * value), 0)


def level_bytes(count: Count, dim: int, levels: int, dtype: Any) -> IntArray:
    """Return how many bytes a message takes whose values are among `levels` different ones.

    The header, the places, the table of levels, and ⌈log2 levels⌉ bits for each value.
    """
    k = np.asarray(count)
    table = 2 + levels * np.dtype(dtype).itemsize
    return np.where(k > 0, HEADER_BYTES + table + subset_bytes(k, dim) + -(-k * code_bits(levels) // 8), 0)


def code_bits(levels: int) -> int:
    """Return how many bits name one of so many levels.

    >>> [code_bits(n) for n in (1, 2, 3, 16)]
    [0, 1, 2, 4]
    """
    return max(0, (levels - 1).bit_length())


@dataclass(frozen=True, eq=False)
class Message:
    """The vector v that is sent, given by its non-zero components.

    Attributes:
        dim: D, the length of v.
        indices: the places of the values, ascending, (k,).
        values: exactly as the receiver gets them, (k,), in the sender's type.
        form: how each value is coded: float64, float32, float16 or bfloat16 (a value must be one of these
            numbers); or "levels", one of the values in `levels`.
        levels: the different values that there may be, for the form "levels"; announced by the compressor,
            so that the size does not depend on which of them occur.
    """

    dim: int
    indices: IntArray
    values: FloatArray
    form: str
    levels: FloatArray | None = None

    @property
    def components(self) -> int:
        """k."""
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """The length of its byte form."""
        if self.levels is not None:
            return int(level_bytes(self.components, self.dim, len(self.levels), self.levels.dtype))
        return int(message_bytes(self.components, self.dim, self.form))

    def dense(self) -> NDArray[Any]:
        """Return v, (D,)."""
        vector = np.zeros(self.dim, dtype=self.values.dtype)
        vector[self.indices] = self.values
        return vector


def nothing(dim: int, dtype: Any) -> Message:
    """Return the message that sends nothing."""
    kind = np.dtype(dtype)
    return Message(dim, np.empty(0, dtype=np.int64), np.empty(0, dtype=kind), kind.name)


def dense_rows(messages: Sequence[Message]) -> FloatArray:
    """Return v of all senders as rows, (N, D)."""
    return np.stack([message.dense() for message in messages])
