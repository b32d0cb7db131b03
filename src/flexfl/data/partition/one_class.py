"""The paper's partition: each client has data of one class only."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import IntArray
from flexfl.errors import Fault, InputError


def one_class(labels: np.ndarray[Any, Any], clients: int, generator: np.random.Generator) -> list[IntArray]:
    """Client n of N has class ⌊n·C/N⌋; a class is spread evenly over its clients, in file order."""
    classes = np.unique(labels)
    if clients < len(classes):
        rule = f"must be at least the number of classes, {len(classes)}, for partition one-class"
        raise InputError([Fault("data.clients", rule, clients, "use more clients or another partition")])
    holds = np.arange(clients) * len(classes) // clients
    parts: list[IntArray] = []
    for index, label in enumerate(classes):
        parts += np.array_split(np.flatnonzero(labels == label), np.count_nonzero(holds == index))
    return parts
