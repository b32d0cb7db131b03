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

from flexfl.arrays import BoolArray, Count, FloatArray, IntArray

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
    return _subset_table(dim)[count] if dim <= _LARGEST_TABLE and count.size > 1 else _subsets(count, dim)


@lru_cache(maxsize=8)
def _subset_table(dim: int) -> IntArray:
    """Return the sizes for every k, which are asked for in every iteration."""
    return _subsets(np.arange(dim + 1), dim)


def _subsets(count: IntArray, dim: int) -> IntArray:
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


def levels_bytes(cells: IntArray, dim: int, table: int) -> IntArray:
    """Return how many bytes a message takes whose magnitudes are among L levels.

    The header, the table of levels, the places, a sign for each value, and the order of the levels.

    Args:
        cells: n_c, how many values have each level, (..., L).
        dim: D.
        table: bytes of the table (`table_bytes`).
    """
    n = np.asarray(cells)
    k = n.sum(axis=-1)
    size = HEADER_BYTES + table + subset_bytes(k, dim) + (k + 7) // 8 + order_bytes(n)
    return np.where(k > 0, size, 0)


def table_bytes(levels: int, table: str, dtype: Any) -> int:
    """Return the size of a table of L levels: their number, and the levels as `Message.table` says.

    >>> [table_bytes(8, table, "float32") for table in ("exact", "short", "even")]
    [34, 20, 6]
    """
    value = int(np.dtype(dtype).itemsize)
    return 2 + {"exact": levels * value, "short": 2 + 2 * levels, "even": value}[table]


def order_bytes(cells: IntArray) -> IntArray:
    """Return the length of the code of which value has which level, given how many have each, (..., L).

    The coder (`wire.order`) learns the shares of the levels as it goes, so that no table of them is sent: its
    code has log2 [(k + L − 1)! / ((L − 1)! Π n_c!)] bits, however the values are ordered, and a byte to end
    with.
    """
    n = np.asarray(cells)
    levels, k = n.shape[-1], n.sum(axis=-1)
    table = log_factorials(int(k.max(initial=0)) + levels)
    bits = table[k + levels - 1] - table[levels - 1]
    for cell in np.flatnonzero(n.reshape(-1, levels).any(axis=0)).tolist():  # others take off nothing
        bits = bits - table[n[..., cell]]
    return np.where((k > 0) & (levels > 1), np.ceil(bits / 8 - 1e-9).astype(np.int64) + 1, 0)


def log_factorials(most: int) -> FloatArray:
    """Return log2 n! for n = 0, 1, …, at least up to `most`."""
    return _log_factorials(1 << max(10, most.bit_length()))


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> FloatArray:
    from scipy.special import gammaln

    return np.asarray(gammaln(np.arange(most + 1) + 1.0) / math.log(2.0))


@dataclass(frozen=True, eq=False)
class Message:
    """The vector v that is sent, given by its non-zero components.

    Attributes:
        dim: D, the length of v.
        indices: the places of the values, ascending, (k,).
        values: exactly as the receiver gets them, (k,), in the sender's type.
        form: how each value is coded: float64, float32, float16 or bfloat16 (a value must be one of these
            numbers); or "levels", a sign and one of the magnitudes in `levels`.
        levels: the magnitudes that there may be, (L,), for the form "levels" (`of_levels`).
        codes: which of the levels each value has, (k,).
        table: how the levels are coded: "exact", each as it is; "short", each with eight significant bits
            (`shortened`); or "even", multiples 1, 2, …, L of the first.
    """

    dim: int
    indices: IntArray
    values: FloatArray
    form: str
    levels: FloatArray | None = None
    codes: IntArray | None = None
    table: str = "exact"

    @classmethod
    def of_levels(
        cls,
        dim: int,
        indices: IntArray,
        negative: BoolArray,
        codes: IntArray,
        levels: FloatArray,
        table: str = "exact",
    ) -> Message:
        """Return a message of signs and levels, both (k,)."""
        magnitudes = levels[codes]
        values = np.where(negative, -magnitudes, magnitudes)
        return cls(dim, indices, values, "levels", levels, codes, table)

    @property
    def components(self) -> int:
        """k."""
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """The length of its byte form."""
        if self.levels is None or self.codes is None:
            return int(message_bytes(self.components, self.dim, self.form))
        cells = np.bincount(self.codes, minlength=len(self.levels))
        return int(levels_bytes(cells, self.dim, table_bytes(len(cells), self.table, self.levels.dtype)))

    def dense(self) -> NDArray[Any]:
        """Return v, (D,)."""
        vector = np.zeros(self.dim, dtype=self.values.dtype)
        vector[self.indices] = self.values
        return vector


def shortened(magnitudes: FloatArray, dtype: Any) -> FloatArray:
    """Return the nearest numbers > 0 with eight significant bits, in that type; never infinite.

    A magnitude that is a number of that type does not become zero.

    >>> shortened(np.array([1.0, 1.001, 0.3]), np.float32)
    array([1.        , 1.        , 0.30078125], dtype=float32)
    """
    fraction, exponent = np.frexp(np.asarray(magnitudes, dtype=np.float64))
    largest = np.ldexp(255.0 / 256.0, np.finfo(dtype).maxexp)
    rounded = np.ldexp(np.rint(fraction * 256.0), exponent - 8)
    return np.asarray(np.minimum(rounded, largest).astype(dtype))


def even_levels(first: Any, levels: int) -> FloatArray:
    """Return 1, 2, …, L times the first level, in its type: sender and receiver have the same ones.

    >>> even_levels(np.float32(0.25), 3)
    array([0.25, 0.5 , 0.75], dtype=float32)
    """
    return np.asarray(np.arange(1, levels + 1, dtype=first.dtype) * first)


def nothing(dim: int, dtype: Any) -> Message:
    """Return the message that sends nothing."""
    kind = np.dtype(dtype)
    return Message(dim, np.empty(0, dtype=np.int64), np.empty(0, dtype=kind), kind.name)


def dense_rows(messages: Sequence[Message]) -> FloatArray:
    """Return v of all senders as rows, (N, D)."""
    return np.stack([message.dense() for message in messages])
