"""Every class is spread over the clients in random shares, the more unevenly the smaller alpha."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.data.partition.classes import Labels, samples_by_class, shuffled
from flexfl.errors import Fault, InputError
from flexfl.parameters import Rule, Whole

_TRIES = 500
_USUAL_MINIMUM = 10
"""The default of flwr-datasets, too."""
_ALPHA = Rule(
    "must be > 0 and at most 1e9",
    lambda alpha: 0 < alpha <= 1e9,
    "the smaller, the more uneven: 0.1 to 1, say",
    example="alpha = 0.3",
)
_MINIMUM = Whole(1, "leave it out for 10, or less where data are few", optional=True)


def dirichlet(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    alpha: Annotated[float, _ALPHA],
    min_partition_size: Annotated[int | None, _MINIMUM] = None,
    self_balancing: bool = False,
) -> list[IntArray]:
    """Draw the clients' shares of each class, p ~ Dirichlet(alpha, …, alpha), until all have enough.

    Args:
        labels: (S,).
        clients: N.
        generator: what it draws from.
        alpha: the smaller, the more uneven.
        min_partition_size: by default 10, or half of an even share where that is less.
        self_balancing: whoever holds S/N samples or more gets nothing of the classes that follow.
    """
    samples = samples_by_class(labels, "dirichlet")
    sizes = np.array([len(of_class) for of_class in samples])
    even = len(labels) // clients
    least = min(_USUAL_MINIMUM, max(1, even // 2)) if min_partition_size is None else min_partition_size
    if least > even:
        rule = f"must be at most the even share of {clients} clients, {even}"
        raise InputError(
            [Fault("data.partition.min_partition_size", rule, least, "use less, or fewer clients")]
        )
    smallest = 0
    for _ in range(_TRIES):
        shares = generator.dirichlet(np.full(clients, alpha), size=len(samples))  # (C, N)
        ends = _balanced_ends(shares, sizes) if self_balancing else cut(shares, sizes[:, None])
        held = np.diff(ends, axis=1, prepend=0).sum(axis=0)
        smallest = max(smallest, int(held.min()))
        if smallest >= least:
            break
    else:
        rule = f"gave each client {least} samples or more in none of {_TRIES} draws; at best {smallest}"
        remedy = "raise alpha, lower min_partition_size, set self_balancing = true, or use fewer clients"
        raise InputError([Fault("data.partition", f"dirichlet {rule}", f"alpha = {alpha:g}", remedy)])
    pieces = [
        np.split(of_class, end[:-1]) for of_class, end in zip(shuffled(samples, generator), ends, strict=True)
    ]
    return [np.concatenate(mine) for mine in zip(*pieces, strict=True)]


def cut(shares: FloatArray, total: int | IntArray) -> IntArray:
    """Where to cut `total` samples so that each piece is its share, to less than one sample; (..., N)."""
    ends = np.floor(np.cumsum(shares, axis=-1) * total + 0.5).astype(np.int64)
    ends[..., -1:] = total  # whatever the shares' sum was rounded to
    return np.asarray(np.minimum(ends, total))


def _balanced_ends(shares: FloatArray, sizes: IntArray) -> IntArray:
    """As `cut`, class by class, with nothing for those who hold an even share already."""
    held = np.zeros(shares.shape[1], dtype=np.int64)
    ends = np.empty(shares.shape, dtype=np.int64)
    for index, (drawn, size) in enumerate(zip(shares, sizes, strict=True)):
        open_ = held * len(held) < sizes.sum()
        wanted = drawn * open_
        # A small alpha may have drawn nothing but zeros for those who are left.
        wanted = wanted / wanted.sum() if wanted.sum() > 0 else open_ / open_.sum()
        ends[index] = cut(wanted, int(size))
        held += np.diff(ends[index], prepend=0)
    return ends
