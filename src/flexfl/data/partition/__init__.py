"""Who holds which samples; one file for each way, with its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels
from flexfl.data.partition.dirichlet import dirichlet
from flexfl.data.partition.iid import iid
from flexfl.data.partition.one_class import one_class
from flexfl.data.partition.quantity import quantity
from flexfl.data.partition.shards import shards
from flexfl.data.partition.similarity import similarity
from flexfl.errors import Fault, InputError
from flexfl.registry import Family

FIELD = "data.partition"

PARTITIONS = Family(
    "partition",
    {
        "one-class": one_class,
        "iid": iid,
        "dirichlet": dirichlet,
        "shards": shards,
        "similarity": similarity,
        "quantity": quantity,
    },
    arguments=3,
)
"""Labels (S,), number of clients, a random stream, options → the sample indices of each client."""


def split(
    partition: str | Mapping[str, Any], labels: Labels, clients: int, generator: np.random.Generator
) -> tuple[IntArray, ...]:
    """Return the samples of each client.

    Args:
        partition: a name, or a table with a kind and its options; an own one is "module:function".
        labels: (S,).
        clients: N.
        generator: what it draws from.

    Raises:
        InputError: lists all faults, of the settings or of what an own partitioner returned.
    """
    resolved = PARTITIONS.resolve(partition, FIELD)
    found = PARTITIONS.make(resolved, FIELD, labels, clients, generator)
    return _checked(found, resolved["kind"], clients, len(labels))


def _checked(found: Any, kind: str, clients: int, samples: int) -> tuple[IntArray, ...]:
    """Return the parts as arrays, or say what is wrong with them."""

    def refuse(rule: str, value: Any) -> InputError:
        return InputError([Fault(FIELD, f"{kind} must return {rule}", value, "correct that function")])

    if not isinstance(found, list | tuple):
        raise refuse("a list with the sample indices of each client", type(found).__name__)
    if len(found) != clients:
        raise refuse(f"a list of {clients} arrays, one for each client", len(found))
    parts = tuple(np.asarray(part) for part in found)
    for client, part in enumerate(parts):
        if part.ndim != 1 or (part.dtype.kind not in "iu" and part.size):
            value = f"shape {part.shape} of {part.dtype} for client {client}"
            raise refuse("arrays (S_n,) of whole numbers", value)
        if part.size and not (int(part.min()) >= 0 and int(part.max()) < samples):
            value = f"{int(part.min())} to {int(part.max())} for client {client}"
            raise refuse(f"sample indices from 0 to {samples - 1}", value)
    return tuple(part.astype(np.int64, copy=False) for part in parts)
