"""Every client's data look alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import IntArray


def iid(labels: np.ndarray[Any, Any], clients: int, generator: np.random.Generator) -> list[IntArray]:
    """A random permutation, dealt out evenly."""
    return list(np.array_split(generator.permutation(len(labels)), clients))
