"""Encoding of k out of d indices in log2 of the binomial coefficient bits.

A range coder processes the components in order; if `ones` of the `left` remaining components are
chosen, the next one is chosen with probability ones/left. These probabilities multiply to exactly
1/(d over k) for every choice. So the length depends on k and d only, and is known before encoding;
a policy can compare it with a budget.

Any bytes decode to k ascending indices below d: wrong orders or indices out of range cannot occur.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from flexfl.arrays import IntArray


def subset_bytes(count: IntArray, dim: int) -> IntArray:
    """Return the length of the code of `count` out of `dim` components: log2 of the binomial, plus a byte.

    Choosing none or all takes no bytes.
    """
    k = np.asarray(count, dtype=np.int64)
    bits = (math.lgamma(dim + 1.0) - gammaln(k + 1.0) - gammaln(dim - k + 1.0)) / math.log(2.0)
    return np.where((k > 0) & (k < dim), np.ceil(bits / 8 - 1e-9).astype(np.int64) + 1, 0)


def encode_subset(indices: IntArray, dim: int) -> bytes:
    """Encode ascending `indices` below `dim`."""
    size = int(subset_bytes(np.asarray(len(indices)), dim))
    if not size:
        return b""
    from flexfl.wire import coder  # numba takes a second to import

    out = np.zeros(size + 16, dtype=np.uint8)
    used = coder.encode(np.asarray(indices, dtype=np.int64), dim, out)
    assert used <= size
    return out[:size].tobytes()


def decode_subset(code: bytes | memoryview, count: int, dim: int) -> IntArray:
    """Decode `count` indices below `dim`; `code` must have the length of `subset_bytes`."""
    if not 0 < count < dim:
        return np.arange(count)
    from flexfl.wire import coder

    return np.asarray(coder.decode(np.frombuffer(code, dtype=np.uint8), count, dim))
