"""Which k of d components, in as many bits as there are such choices: log2 of the binomial.

A range coder goes through the components; given that `ones` of the `left` ones that remain are
chosen, the next is chosen with probability ones/left. These probabilities multiply to exactly
1/(d over k), whichever components they are. So the length depends on k and d alone, and is known
before anything is coded; a budget can be held against it.

Any bytes decode to k ascending indices below d: there is no wrong order and no index out of range.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from flexfl.arrays import IntArray
from flexfl.compress.message import subset_bytes
from flexfl.extras import compiled_or_plain


def encode_subset(indices: IntArray, dim: int) -> bytes:
    """Return the code of ascending `indices` below `dim`."""
    size = int(subset_bytes(np.asarray(len(indices)), dim))
    if not size:
        return b""
    out = np.zeros(size + 16, dtype=np.uint8)
    used = _coder().encode_subset(np.asarray(indices, dtype=np.int64), dim, out)
    assert used <= size
    return out[:size].tobytes()


def decode_subset(code: bytes | memoryview, count: int, dim: int) -> IntArray:
    """Return the indices; `code` must have the length that `subset_bytes` returns."""
    if not 0 < count < dim:
        return np.arange(count)
    return np.asarray(_coder().decode_subset(np.frombuffer(code, dtype=np.uint8), count, dim))


def _coder() -> ModuleType:
    return compiled_or_plain("flexfl.wire.coder", "flexfl.wire.plain_coder")
