"""The paper's partition: each client has data of only one class."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels, samples_by_class
from flexfl.errors import Fault, InputError


def one_class(labels: Labels, clients: int, generator: np.random.Generator) -> list[IntArray]:
    """Give client n of N class ⌊n·C/N⌋; a class is split evenly between its clients, in file order.

    Raises:
        InputError: There are fewer clients than classes, or too few samples of a class.
    """
    samples = samples_by_class(labels, "one-class")
    if clients < len(samples):
        rule = f"must be at least the number of classes, {len(samples)}, for partition one-class"
        raise InputError([Fault("data.clients", rule, clients, "use more clients or another partition")])
    holds = np.arange(clients) * len(samples) // clients
    shares = np.bincount(holds)
    for of_class, share in zip(samples, shares, strict=True):
        if len(of_class) < share:
            shortage = f"class {labels[of_class[0]]} has {len(of_class)} for {share} clients"
            rule = f"must leave every client a sample, with one-class ({shortage})"
            raise InputError([Fault("data.clients", rule, clients, "use fewer clients or another partition")])
    split = (np.array_split(of_class, share) for of_class, share in zip(samples, shares, strict=True))
    return [part for parts in split for part in parts]
