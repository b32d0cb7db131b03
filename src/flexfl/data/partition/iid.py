"""IID partition: all clients have the same distribution."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels


def iid(labels: Labels, clients: int, generator: np.random.Generator) -> list[IntArray]:
    """Split a random permutation of the samples evenly."""
    return list(np.array_split(generator.permutation(len(labels)), clients))
