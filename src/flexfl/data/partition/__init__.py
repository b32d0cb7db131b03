"""Who holds which samples; one file for each way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.iid import iid
from flexfl.data.partition.one_class import one_class

Partitioner = Callable[[np.ndarray[Any, Any], int, np.random.Generator], list[IntArray]]
"""Labels (S,), number of clients, a random stream → the sample indices of each client."""

PARTITIONS: dict[str, Partitioner] = {"one-class": one_class, "iid": iid}
