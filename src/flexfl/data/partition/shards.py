"""Shards partition: every client has the same number of classes, drawn at random."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels, samples_by_class, shuffled
from flexfl.errors import Fault, InputError
from flexfl.parameters import Whole

_FIELD = "data.partition.num_classes_per_partition"
_CLASSES = Whole(1, "the number of classes at each client")


def shards(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    num_classes_per_partition: Annotated[int, _CLASSES] = 2,
) -> list[IntArray]:
    """Cut each class into even shards, and give each client c shards of c different classes.

    All classes have equally many of the N·c shards, within one, unless a class has too few samples.

    Args:
        labels: Class of each sample, (S,).
        clients: Number of clients N.
        generator: The random stream.
        num_classes_per_partition: The number c.

    Raises:
        InputError: There is no such partition.
    """
    samples = samples_by_class(labels, "shards")
    c, classes = num_classes_per_partition, len(samples)
    if c > classes:
        raise _fault(f"must be at most the number of classes, {classes}", c, "use fewer")
    if clients * c < classes:
        rule = f"must be at least {-(-classes // clients)}, or some of the {classes} classes are not used"
        raise _fault(rule, c, "use more of them, or more clients")
    most = np.minimum(clients, [len(of_class) for of_class in samples])
    if most.sum() < clients * c:
        rule = f"must be at most {most.sum() // clients}: the classes have too few samples for more"
        raise _fault(rule, c, "use fewer of them, or fewer clients")
    quota = _quotas(most, clients * c, generator)
    holders: list[list[int]] = [[] for _ in samples]
    for client, of_client in enumerate(_deal(quota, clients, generator)):
        for index in of_client:
            holders[index].append(client)
    parts: list[list[IntArray]] = [[] for _ in range(clients)]
    for of_class, owners in zip(shuffled(samples, generator), holders, strict=True):
        # At random, or the first clients would get the shards that are one sample larger.
        pieces = np.array_split(of_class, len(owners))
        for client, shard in zip(generator.permutation(owners), pieces, strict=True):
            parts[client].append(shard)
    return [np.concatenate(part) for part in parts]


def _quotas(most: IntArray, total: int, generator: np.random.Generator) -> IntArray:
    """Return the number of shards of each class, (C,): `total` in sum, as even as `most` allows."""
    quota = np.zeros_like(most)
    while (left := total - int(quota.sum())) > 0:
        free = generator.permutation(np.flatnonzero(quota < most))
        if left < len(free):  # not enough for all: give one to some
            free = free[:left]
        quota[free] += left // len(free)
        quota = np.minimum(quota, most)
    return quota


def _deal(quota: IntArray, clients: int, generator: np.random.Generator) -> list[IntArray]:
    """Return each client's c classes, drawn in proportion to the remaining shards of a class.

    A class with as many remaining shards as there are remaining clients goes to all of them, so no
    shard is left over: with m clients and m·c shards remaining, at most c classes can have m.
    """
    left, c = quota.copy(), int(quota.sum()) // clients
    dealt: list[IntArray] = []
    for remaining in range(clients, 0, -1):
        due = np.flatnonzero(left == remaining)
        rest = np.where(left == remaining, 0, left)
        chosen = due
        if len(due) < c:
            drawn = generator.choice(len(left), c - len(due), replace=False, p=rest / rest.sum())
            chosen = np.concatenate([due, drawn])
        left[chosen] -= 1
        dealt.append(chosen)
    return dealt


def _fault(rule: str, value: int, remedy: str) -> InputError:
    return InputError([Fault(_FIELD, rule, value, remedy)])
