"""The objective of P3.2 and P3.3, V·‖b − v‖² + Φ·φ(k), for some of the entities that a cost is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine
from flexfl.costs.packets import Staircase

AT_ONCE = 2**20
"""Objectives that are weighed at once: temporaries stay within some ten megabytes."""


class Objective:
    """The objective of M entities, as a function of candidates (..., M)."""

    def __init__(
        self,
        V: Number,
        Phi: Number,
        cost: Cost,
        shape: tuple[int, ...],
        sizes_of: Callable[[IntArray], NDArray[Any]] = np.asarray,
        places: IntArray | None = None,
    ) -> None:
        """Set up the objective.

        Args:
            V: what ‖b − v‖² is weighed with.
            Phi: what the cost is weighed with.
            cost: φ, a function of the size of a message.
            shape: of the entities.
            sizes_of: the size of a message of k components.
            places: which entities of the flattened `shape`; by default all.
        """
        self._given, self._sizes_of = (V, Phi, cost, shape, sizes_of), sizes_of
        self.places = np.arange(int(np.prod(shape))) if places is None else places
        self.V, self._Phi = (np.broadcast_to(array, shape).reshape(-1)[self.places] for array in (V, Phi))
        self._cost = cost_of_some(cost, self.places, shape)

    @property
    def affine(self) -> tuple[FloatArray, FloatArray] | None:
        """Φ·β and Φ·γ for a cost β + γ·size that is 0 for nothing, (M,); None for another cost."""
        _, Phi, cost, shape, _ = self._given
        if type(cost) is not Affine:
            return None
        each = (np.multiply(Phi, part) for part in (cost.per_message, cost.per_component))
        fixed, slope = (np.broadcast_to(part, shape).reshape(-1)[self.places] for part in each)
        return np.asarray(fixed, dtype=np.float64), np.asarray(slope, dtype=np.float64)

    def of(self, columns: IntArray) -> Objective:
        """Return the objective of some of these entities, by their place among them."""
        return Objective(*self._given, self.places[columns])

    def price(self, k: IntArray) -> FloatArray:
        """Return Φ·φ of messages of k components."""
        return priced(self._Phi, self._cost(self._sizes_of(k)))

    def of_sizes(self, sizes: NDArray[Any], kept: FloatArray) -> FloatArray:
        """Return the objective of messages of these sizes."""
        return np.asarray(priced(self._Phi, self._cost(sizes)) + self.V * kept)

    def __call__(self, k: IntArray, kept: FloatArray) -> FloatArray:
        return np.asarray(self.price(k) + self.V * kept)


def cost_of_some(cost: Any, places: IntArray, shape: tuple[int, ...]) -> Callable[[IntArray], FloatArray]:
    """Return the cost of some of the entities, as a function of amounts (..., M)."""
    if not shape:  # one entity, without an axis
        return lambda amounts: np.asarray(cost(amounts[..., 0]))[..., None]
    if len(places) == shape[0] and (places == np.arange(len(places))).all():
        return lambda amounts: np.broadcast_to(cost(amounts), amounts.shape)
    if type(cost) in (Affine, Staircase):  # of whose fields we know that an array is one for each entity
        own = {entry.name: getattr(cost, entry.name) for entry in fields(cost)}
        share = {name: _share(value, places, shape) for name, value in own.items()}
        part: Any = replace(cost, **share)
        return lambda amounts: np.broadcast_to(part(amounts), amounts.shape)

    def among_all(amounts: IntArray) -> FloatArray:
        # The others' amounts do not matter; a block at a time keeps memory within bounds.
        listed, block = amounts.reshape(-1, len(places)), max(1, AT_ONCE // shape[0])
        found = np.empty(listed.shape)
        for begin in range(0, len(listed), block):
            some = listed[begin : begin + block]
            spread = np.zeros((len(some), *shape), dtype=amounts.dtype)
            spread[:, places] = some
            found[begin : begin + block] = np.broadcast_to(cost(spread), spread.shape)[:, places]
        return found.reshape(amounts.shape)

    return among_all


def _share(value: Any, places: IntArray, shape: tuple[int, ...]) -> Any:
    return value[places] if isinstance(value, np.ndarray) and value.shape == shape else value


def priced(queue: FloatArray, cost: FloatArray) -> FloatArray:
    """Return queue times cost; an infinite cost stays forbidden where the queue is empty (0·∞)."""
    if np.isfinite(cost).all():
        return np.asarray(queue * cost)
    return np.where(np.isinf(cost), np.inf, queue * np.where(np.isinf(cost), 0.0, cost))
