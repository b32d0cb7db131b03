"""Quantity partition: IID labels, but clients of different size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.data.partition.classes import Labels
from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import Rule, fault, plain

_ROUNDING = 1e-9

WEIGHTS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "linear": lambda n: n,
    "square": lambda n: n**2,
    "exponential": lambda n: np.exp(n - n[-1]),  # proportional to eⁿ, without overflow
}
"""Functions of the clients' numbers 1, …, N."""


class _Sizes(Rule):
    """One of the names, or a list with one number for each client."""

    def check(self, value: Any) -> Any:
        value = plain(value)
        if isinstance(value, str) and value in WEIGHTS:
            return value
        if not isinstance(value, list) or not value:
            rule = f"must be one of {', '.join(WEIGHTS)}, or a list of numbers"
            remedy = nearest(value, WEIGHTS) if isinstance(value, str) else "a list has one for each client"
            raise fault(rule, value, remedy)
        return super().check(value)


_SIZES = _Sizes(
    # Nothing that could overflow when it is summed or multiplied by a number of samples.
    "must be > 0 and at most 1e15",
    lambda size: 0 < size <= 1e15,
    "give each client's proportion",
    per_client=True,
)


def quantity(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    sizes: Annotated[str | list[float], _SIZES] = "linear",
) -> list[IntArray]:
    """Split a random permutation in proportion to `sizes`; each client gets at least one sample.

    Args:
        labels: Labels of the samples, (S,).
        clients: Number of clients N.
        generator: The random stream.
        sizes: A name in `WEIGHTS`, or a number for each client.

    Raises:
        InputError: The list has not one number for each client.
    """
    if isinstance(sizes, str):
        weights = WEIGHTS[sizes](np.arange(1.0, clients + 1))
    elif len(sizes) == clients:
        weights = np.asarray(sizes, dtype=float)
    else:
        rule = f"must have one number for each of the {clients} clients"
        raise InputError([Fault("data.partition.sizes", rule, len(sizes), "adjust the list or data.clients")])
    ends = np.cumsum(proportional(weights, len(labels)))
    return np.split(generator.permutation(len(labels)), ends[:-1])


def proportional(weights: FloatArray, total: int) -> IntArray:
    """Return integer sizes ≥ 1 with sum `total` ≥ N: max(1, z·w), rounded by largest remainder, (N,).

    z is chosen so that the sum is `total`.

    >>> proportional(np.array([1.0, 1.0, 8.0]), 5)
    array([1, 1, 3])
    """
    share = weights / weights.sum() * total
    one = np.zeros(len(weights), dtype=bool)
    while (below := (share < 1 - _ROUNDING) & ~one).any():
        one |= below
        share = np.where(one, 1.0, weights / weights[~one].sum() * (total - one.sum()))
    whole = np.maximum(1, np.floor(share + _ROUNDING)).astype(np.int64)
    left = total - int(whole.sum())
    whole[np.argsort(whole - share, kind="stable")[:left]] += 1
    return np.asarray(whole)
