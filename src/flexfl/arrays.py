"""The array types that signatures name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]

# One number for all entities, or an array with one for each.
Number = float | FloatArray
Count = int | IntArray


def spread(values: Number | Count, shape: tuple[int, ...]) -> NDArray[Any]:
    """One for all or one for each, as one for each: `np.broadcast_to`, free where nothing is to do."""
    array = np.asarray(values)
    return array if array.shape == shape else np.broadcast_to(array, shape)
