"""Dirichlet partition: each class is split in random shares; a smaller alpha is more uneven."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.data.partition.classes import Labels, samples_by_class, shuffled
from flexfl.errors import Fault, InputError
from flexfl.parameters import Rule, Whole

_TRIES = 500
_DEFAULT_MINIMUM = 10
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
    """Split each class in shares p ~ Dirichlet(alpha, …, alpha); redraw until every client has enough.

    Args:
        labels: Class of each sample, (S,).
        clients: Number of clients N.
        generator: The random stream.
        alpha: Concentration of the distribution.
        min_partition_size: Least samples of a client; by default 10, or half of an even share if less.
        self_balancing: Give clients that hold S/N samples or more nothing of the remaining classes.

    Raises:
        InputError: The minimum is too large, or 500 draws did not reach it.
    """
    samples = samples_by_class(labels, "dirichlet")
    sizes = np.array([len(of_class) for of_class in samples])
    even = len(labels) // clients
    least = min(_DEFAULT_MINIMUM, max(1, even // 2)) if min_partition_size is None else min_partition_size
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
    return [np.concatenate(of_client) for of_client in zip(*pieces, strict=True)]


def cut(shares: FloatArray, total: int | IntArray) -> IntArray:
    """Return where to cut `total` samples so that pieces match the shares within one sample, (..., N)."""
    ends = np.floor(np.cumsum(shares, axis=-1) * total + 0.5).astype(np.int64)
    ends[..., -1:] = total  # the sum of the shares may have a rounding error
    return np.asarray(np.minimum(ends, total))


def _balanced_ends(shares: FloatArray, sizes: IntArray) -> IntArray:
    """Like `cut`, class by class, with nothing for clients that hold an even share already."""
    held = np.zeros(shares.shape[1], dtype=np.int64)
    ends = np.empty(shares.shape, dtype=np.int64)
    for index, (drawn, size) in enumerate(zip(shares, sizes, strict=True)):
        open_ = held * len(held) < sizes.sum()
        wanted = drawn * open_
        # A small alpha may have drawn only zeros for the remaining clients.
        wanted = wanted / wanted.sum() if wanted.sum() > 0 else open_ / open_.sum()
        ends[index] = cut(wanted, int(size))
        held += np.diff(ends[index], prepend=0)
    return ends
