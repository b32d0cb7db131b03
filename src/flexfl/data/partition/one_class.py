"""The paper's partition: each client has data of one class only."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels, samples_by_class
from flexfl.errors import Fault, InputError


def one_class(labels: Labels, clients: int, generator: np.random.Generator) -> list[IntArray]:
    """Client n of N has class ⌊n·C/N⌋; a class is spread evenly over its clients, in file order."""
    samples = samples_by_class(labels, "one-class")
    if clients < len(samples):
        rule = f"must be at least the number of classes, {len(samples)}, for partition one-class"
        raise InputError([Fault("data.clients", rule, clients, "use more clients or another partition")])
    holds = np.arange(clients) * len(samples) // clients
    parts: list[IntArray] = []
    for index, of_class in enumerate(samples):
        parts += np.array_split(of_class, np.count_nonzero(holds == index))
    return parts
