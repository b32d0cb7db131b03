"""By-column partition: each distinct value of a column, such as a user's number, is a client."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels
from flexfl.errors import Fault, InputError


def by_column(values: Labels, clients: int, generator: np.random.Generator, *, column: str) -> list[IntArray]:
    """Give each client the samples with one value of the column; clients are in the order of the values.

    Args:
        values: What the column holds for each sample, (S,); `split` looks it up.
        clients: Number of clients N.
        generator: The random stream; nothing is drawn from it.
        column: The name of the column.

    Raises:
        InputError: N is not the number of distinct values.
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(counts) != clients:
        rule = f"must be the number of distinct values of the column {column!r}, {len(counts)}"
        remedy = f"set it to {len(counts)}, or leave it out in Federated.split"
        raise InputError([Fault("data.clients", rule, clients, remedy)])
    return np.split(np.argsort(place, kind="stable"), np.cumsum(counts)[:-1])
