"""What a compressor is, and what a rule may know before it decides how much to send.

A compressor turns a vector b and an *amount* into a message v; b − v stays in the residual. An amount is a
whole number: 0 sends nothing, and what 1, 2, … send is the compressor's own affair (how many components,
with how many bits). For each amount it reports, before anything is coded, what the message takes and what
stays behind, so that P3.2 and P3.3 can be minimised over all of them.

`offers` and `compress` are the plain path, which makes a compressor work everywhere at once: in the oracle,
in the engine and between machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from flexfl.arrays import Count, FloatArray, IntArray, Number
from flexfl.compress.message import Message

Random = Callable[[], np.random.Generator]
"""Opens the sender's stream of this iteration, from its beginning; for compressors that draw lots."""


@dataclass(frozen=True, eq=False)
class Offers:
    """What could be sent of one vector b, by amount from 0 (nothing) on; all of shape (A,).

    Attributes:
        components: k, how many components are sent; never falls as the amount grows.
        kept: ‖b − v‖², what would stay behind.
        nbytes: the size of the message.
    """

    components: IntArray
    kept: FloatArray
    nbytes: IntArray


@runtime_checkable
class Compressor(Protocol):
    """From a vector and an amount to a message.

    Optional besides: `state()` and `restore(state)` for a compressor with a memory (`flexfl.state`).
    """

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        """Return what could be sent of b, (D,)."""
        ...

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        """Return the message of that amount, with the size and the remainder that `offers` announced."""
        ...


@runtime_checkable
class LargestFirst(Compressor, Protocol):
    """A compressor that sends the k largest components, each on its own, lowest index first among equals.

    Its amounts are k, and what a component contributes does not depend on the others, so that the closed
    form of Section IV-E holds.
    """

    exact: bool
    """Whether values arrive as they are: a component contributes b_j²."""

    def gains(self, vector: FloatArray) -> FloatArray:
        """Return what each component would take off ‖b − v‖², (..., D) in float64; grows with |b_j|."""
        ...

    def nbytes(self, count: Count, dim: int, dtype: np.dtype[np.floating]) -> IntArray:
        """Return the size of a message of k components."""
        ...


class Choices(Protocol):
    """What a sending rule may ask of the vectors b, shape (..., D), before it decides.

    Attributes:
        energy: ‖b‖², (...).
        largest_first: whether `above` may be asked, and amounts are numbers of components.
    """

    @property
    def energy(self) -> FloatArray: ...
    @property
    def largest_first(self) -> bool: ...

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        """Return #{j : gain_j > cut²} and the sum of these gains; cut and enough are (...).

        A vector whose excess, the sum of gain − cut² over that set, stays below `enough` may be answered
        with (0, 0): who asks has no use for it, and it need not be read.
        """
        ...

    def everything(self) -> IntArray:
        """Return the amounts that leave the least behind, (...)."""
        ...

    def at_most(self, components: Count) -> IntArray:
        """Return the largest amounts that send no more than so many components, (...)."""
        ...

    def components(self, amounts: IntArray) -> IntArray:
        """Return how many components these amounts send, (...): what a cost is a function of."""
        ...

    def offers(self, place: int) -> Offers:
        """Return all that could be sent of one of the vectors."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """Choices that know, without looking at every vector, what no compressor can do better.

    Optional: with it, a search looks only at vectors that may have something to send.
    """

    @property
    def dim(self) -> int:
        """D."""
        ...

    def most(self, components: IntArray) -> FloatArray:
        """Return, for k (K, 1), a number that what k components take off ‖b‖² is not above, (K, N)."""
        ...

    def at_best(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        """Return #{j : |b_j| > cut} and the sum of these b_j²: `above` if all values arrived as they are."""
        ...
