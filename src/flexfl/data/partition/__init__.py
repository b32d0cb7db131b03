"""Partitioners, one per file; their options and defaults are in `spec.partition`."""

from __future__ import annotations

from collections.abc import Callable

from flexfl.arrays import IntArray
from flexfl.data.partition.dirichlet import dirichlet
from flexfl.data.partition.iid import iid
from flexfl.data.partition.one_class import one_class
from flexfl.data.partition.quantity import quantity
from flexfl.data.partition.shards import shards
from flexfl.data.partition.similarity import similarity

Partitioner = Callable[..., list[IntArray]]
"""Labels (S,), number of clients, a random stream, options → the sample indices of each client."""

PARTITIONS: dict[str, Partitioner] = {
    "one-class": one_class,
    "iid": iid,
    "dirichlet": dirichlet,
    "shards": shards,
    "similarity": similarity,
    "quantity": quantity,
}
