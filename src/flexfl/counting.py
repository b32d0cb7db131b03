"""What a cost of sending counts: components, as the paper does, or what the codec writes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Counts = Literal["components", "bits", "bytes"]
"""Components; or the message as it is written, in bytes, or in bits by words of 32."""
WORD_BITS = 32
"""A cost that counts bits counts words of so many: what a component's value is in the paper."""


def size_in(counts: Counts, components: Any, nbytes: Any) -> NDArray[Any]:
    """Return the size of messages as a cost counts it.

    >>> [float(size_in(counts, 3, 40)) for counts in ("components", "bytes", "bits")]
    [3.0, 40.0, 10.0]
    """
    if counts == "components":
        return np.asarray(components)
    return np.asarray(nbytes) if counts == "bytes" else np.asarray(nbytes) * (8 / WORD_BITS)
