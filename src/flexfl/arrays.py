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
