"""Which of L levels each of k values has, in a length that is known from how many have each.

A range coder goes through the values; if `seen` of them have passed and n_c of these have level c, the next
has it with probability (n_c + 1)/(seen + L). These probabilities multiply to (L − 1)! Π n_c! / (k + L − 1)!,
however the values are ordered. So no table of shares is sent, the length depends on the counts alone, and is
known before anything is coded (`compress.message.order_bytes`).

Any bytes decode to k numbers below L.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from flexfl.arrays import IntArray
from flexfl.compress.message import order_bytes
from flexfl.extras import compiled_or_plain


def encode_order(codes: IntArray, levels: int) -> bytes:
    """Return the code of `codes`, whole numbers from 0 to `levels` − 1."""
    size = int(order_bytes(np.bincount(codes, minlength=levels)))
    if not size:
        return b""
    out = np.zeros(size + 16, dtype=np.uint8)
    used = _coder().encode_order(np.asarray(codes, dtype=np.int64), levels, out)
    assert used <= size
    return out[:size].tobytes()


def decode_order(code: bytes | memoryview, count: int, levels: int) -> IntArray:
    """Return the `count` numbers; of the right code only if its length is what `order_bytes` says of them."""
    if levels == 1:
        return np.zeros(count, dtype=np.int64)
    return np.asarray(_coder().decode_order(np.frombuffer(code, dtype=np.uint8), count, levels))


def _coder() -> ModuleType:
    return compiled_or_plain("flexfl.wire.coder", "flexfl.wire.plain_coder")
