"""Class labels, for the partitioners that need them."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import IntArray
from flexfl.errors import Fault, InputError

Labels = np.ndarray[Any, Any]


def need_classes(labels: Labels, kind: str) -> None:
    """Raise InputError if labels are real numbers, which are not classes."""
    if labels.dtype.kind == "f":
        remedy = "use iid or quantity, or give the classes as whole numbers"
        fault = Fault("data.partition", "needs labels that are classes", f"{kind} for {labels.dtype}", remedy)
        raise InputError([fault])


def samples_by_class(labels: Labels, kind: str) -> list[IntArray]:
    """Return the sample indices of each class that occurs, in file order."""
    need_classes(labels, kind)
    counts = np.unique(labels, return_counts=True)[1]
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])


def shuffled(samples: list[IntArray], generator: np.random.Generator) -> list[IntArray]:
    """Return the samples of each class in random order."""
    return [generator.permutation(of_class) for of_class in samples]
