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
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import Count, FloatArray, IntArray, Number
from flexfl.compress.message import Message
from flexfl.counting import Counts, size_in

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

    def sizes(self, counts: Counts) -> NDArray[Any]:
        """Return what a cost is a function of, (A,)."""
        return size_in(counts, self.components, self.nbytes)


@runtime_checkable
class Compressor(Protocol):
    """From a vector and an amount to a message.

    Optional besides:

    - `state()` and `restore(state)`, for a compressor with a memory (`flexfl.state`);
    - `least_bytes(components, dim)`, a size that no message of so many components is below;
    - `sendable(vector, random)`, for one whose amounts are k: the largest k, without listing all of them;
    - the methods of `Searchable`, for one with so many amounts that not all can be listed in an iteration.
    """

    def offers(self, vector: FloatArray, random: Random) -> Offers:
        """Return what could be sent of b, (D,)."""
        ...

    def compress(self, vector: FloatArray, amount: int, random: Random) -> Message:
        """Return the message of that amount, with the size and the remainder that `offers` announced."""
        ...


class Weigh(Protocol):
    """The objective of candidates."""

    @property
    def affine(self) -> bool:
        """Whether the price is a constant and so much for each unit of size; else it may have steps."""
        ...

    def __call__(self, components: IntArray, nbytes: IntArray, kept: FloatArray, /) -> FloatArray:
        """Return the objective, given k, bytes and ‖b − v‖², all (A,)."""
        ...


@runtime_checkable
class Searchable(Compressor, Protocol):
    """A compressor that finds the best of its amounts without listing them all."""

    def best(self, vector: FloatArray, weigh: Weigh, random: Random) -> int:
        """Return the amount with the least objective."""
        ...

    def at_most(self, vector: FloatArray, components: int) -> int:
        """Return the largest amount that sends no more than so many components: of all, the last one."""
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
        counts: what `sizes` are, as the cost counts them.
    """

    @property
    def energy(self) -> FloatArray: ...
    @property
    def largest_first(self) -> bool: ...
    @property
    def counts(self) -> Counts: ...

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
        """Return how many components these amounts send, (...)."""
        ...

    def sizes(self, amounts: IntArray) -> NDArray[Any]:
        """Return the sizes of these amounts, (...): what a cost is a function of."""
        ...

    def sizes_of(self, components: IntArray) -> NDArray[Any]:
        """Return the size of messages of so many components; the least where it also depends on others."""
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

    def reach(self, objective: Weighed, grid: IntArray, margin: float) -> IntArray | None:
        """Return the largest k of a grid that `most` allows to be worth its price, 0 where there is none.

        Optional: None if it is to be found with `most`.
        """
        ...

    def at_best(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        """Return #{j : |b_j| > cut} and the sum of these b_j²: `above` if all values arrived as they are."""
        ...


class Weighed(Protocol):
    """The objective of M vectors, for candidates (A, M); see `control.objective.Objective`."""

    @property
    def places(self) -> IntArray:
        """Which vectors, (M,)."""
        ...

    V: FloatArray
    """What ‖b − v‖² is weighed with, (M,)."""

    @property
    def affine(self) -> tuple[FloatArray, FloatArray] | None:
        """What a message costs in any case, and for each unit of its size, (M,); None for other costs."""
        ...

    def of(self, columns: IntArray) -> Weighed:
        """Return the objective of some of them."""
        ...

    def of_sizes(self, sizes: NDArray[Any], kept: FloatArray) -> FloatArray:
        """Return the objective of messages of these sizes that leave so much behind, (A, M)."""
        ...


@runtime_checkable
class Searching(Protocol):
    """Choices that find the best amount themselves, for compressors whose amounts cannot all be listed."""

    @property
    def searching(self) -> bool:
        """Whether it is so."""
        ...

    def least(self, objective: Weighed, reach: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the best amounts of the objective's vectors, (M,), and what they leave behind.

        Amounts of more than `reach` components, (M,), are no better than nothing, and need not be tried.
        """
        ...
