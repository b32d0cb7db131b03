"""What a client computes in one iteration: the change Δ that stands where −η·g stands in line 6.

    b = e + (𝟙/q)·Δ_n(x)

The paper's Δ is −η·g, the step of one minibatch gradient (`local.gradient`). Dividing by q keeps E[𝟙/q · Δ]
= Δ whatever Δ is, and nothing is lost: x + r + Σ w·e moves only by Σ w·(𝟙/q)·Δ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flexfl.state import State

Array = Any
"""One client's vector (D,) of NumPy, or those of some clients (M, D), of NumPy or torch."""

Memory = dict[str, Array]
"""What clients remember from one computation to their next, by name: (...,) of the clients, and one axis."""

Gradient = Callable[[Array, int], Array]
"""g(y, k): the gradients at the parameters y on minibatch k of this iteration, in the shape of y."""


@runtime_checkable
class LocalWork(Protocol):
    """What clients compute in an iteration, as a pure function of x and of what they remember.

    It is called for one client with vectors (D,) of NumPy (the oracle, a deployed client), and for many at
    once with (M, D) of torch (the engine). Operators (+, ·, ** 0.5) and methods such as `.sum(-1)` and
    `.clip` are the same in both; nothing that is given may be changed in place.

    Optional besides: `begin(x)`, for work that remembers something, returns the `Memory` before the first
    computation. It must be the same for every client.

    Attributes:
        gradients: H, how many gradients a computation takes, each on a minibatch of its own. So many
            minibatches are used, and a computation costs so many times what one gradient costs.
    """

    @property
    def gradients(self) -> int: ...

    def change(self, gradient: Gradient, x: Array, eta: float, memory: Memory) -> tuple[Array, Memory]:
        """Return Δ, in the shape of x, and what is remembered from now on.

        Args:
            gradient: g(y, k) with k < H. At x itself, given as the same object, it is the fastest.
            x: the parameters that the iteration begins with.
            eta: η of this iteration.
            memory: what `begin` or the last computation returned; {} for work without a memory.
        """
        ...


def first_memory(local: LocalWork, x: Array) -> Memory:
    """Return what clients at x remember before their first computation."""
    begin = getattr(local, "begin", None)
    return {} if begin is None else begin(x)


class ClientWork:
    """The local work of one client with what it remembers: in the oracle, and at a deployed client."""

    begins_empty = True

    def __init__(self, local: LocalWork) -> None:
        self.local = local
        self._memory: Memory | None = None

    def change(self, gradient: Gradient, x: NDArray[Any], eta: float) -> NDArray[Any]:
        """Return Δ, (D,), and take note of what is to be remembered."""
        memory = first_memory(self.local, x) if self._memory is None else self._memory
        delta, self._memory = self.local.change(gradient, x, eta, memory)
        return np.asarray(delta)

    def state(self) -> State:
        return {name: np.asarray(kept) for name, kept in (self._memory or {}).items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._memory = {name: np.array(kept) for name, kept in state.items()} or None
