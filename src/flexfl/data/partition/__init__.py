"""Who holds which samples; one file for each way, with its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.by_column import by_column
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
        "by-column": by_column,
    },
    arguments=3,
)
"""Labels (S,), number of clients, a random stream, options → the sample indices of each client.

One with an option `column` gets what that column holds instead of the labels.
"""


def column_of(partition: str | Mapping[str, Any]) -> str | None:
    """Return the column that a partition needs, if it needs one; raise InputError for its faults."""
    column = PARTITIONS.resolve(partition, FIELD).get("column")
    return column if isinstance(column, str) else None


def split(
    partition: str | Mapping[str, Any],
    labels: Labels,
    clients: int | None,
    generator: np.random.Generator,
    column: Any = None,
) -> tuple[IntArray, ...]:
    """Return the samples of each client.

    Args:
        partition: a name, or a table with a kind and its options; an own one is "module:function".
        labels: (S,).
        clients: N; None for the number of distinct values of the column.
        generator: what it draws from.
        column: what the column of the partition (`column_of`) holds, one value for each sample.

    Raises:
        InputError: lists all faults, of the settings or of what an own partitioner returned.
    """
    resolved = PARTITIONS.resolve(partition, FIELD)
    values = labels if column is None else _column(column, resolved["column"], len(labels))
    if clients is None:
        if column is None:
            raise InputError([Fault("data.clients", "is needed", None, "give the number of clients N")])
        clients = len(np.unique(values))
    found = PARTITIONS.make(resolved, FIELD, values, clients, generator)
    return _checked(found, resolved["kind"], clients, len(labels))


def _column(given: Any, name: str, samples: int) -> Labels:
    """Return a column as an array, (S,), or say what is wrong with it."""

    def refuse(rule: str, value: Any, remedy: str) -> InputError:
        return InputError([Fault(f"{FIELD}.column", f"{name!r} {rule}", value, remedy)])

    values = np.asarray(given)
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.reshape(-1)):
        values = values.astype(str)
    if values.shape != (samples,):
        raise refuse(f"must hold one value for each of the {samples} samples", values.shape, "correct it")
    if values.dtype.kind not in "iubfSUM":
        value = next((v for v in values if not isinstance(v, str)), values.dtype)
        raise refuse("must hold numbers or text", value, "fill in what is missing")
    missing = np.isnan(values) if values.dtype.kind in "fM" else np.zeros(samples, dtype=bool)
    if missing.any():
        place = f"{values[missing][0]} at sample {int(missing.argmax())}"
        raise refuse("must hold a value for each sample", place, "fill in what is missing")
    return values


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
