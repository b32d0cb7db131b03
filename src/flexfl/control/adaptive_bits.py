"""Messages that grow during the run: few bits for a parameter at first, more at the end, as in AdaQuantFL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flexfl.arrays import BoolArray, IntArray, Number
from flexfl.compress.base import Choices
from flexfl.control.affordable import compute_on_average, pays
from flexfl.control.paced import PacedSend
from flexfl.control.policy import ComputeRule, Scope, SendRule
from flexfl.costs.base import Cost
from flexfl.counting import size_in
from flexfl.parameters import KNOBS, Positive
from flexfl.streams import Moment

_HEADER = 64
"""Bytes of a message that do not count as those of its parameters."""


def bits_at(first: float, last: float, iteration: int, iterations: int) -> float:
    """Return how many bits a message has for each parameter: from `first` to `last`, geometrically.

    >>> [round(bits_at(2.0, 8.0, t, 5), 1) for t in range(5)]
    [2.0, 2.8, 4.0, 5.7, 8.0]
    """
    part = min(1.0, iteration / (iterations - 1)) if iterations > 1 else 0.0
    return float(first * (last / first) ** part)


class GrowingSend(PacedSend):
    """Sends the largest message of at most so many bits for each parameter, when its cost is saved up.

    What fits is the compressor's: more bits for each component if its amounts are numbers of bits, more
    components if they are numbers of components.
    """

    def __init__(self, income: Number, first: float, last: float, iterations: int) -> None:
        super().__init__(income, 1.0)
        self.first, self.last, self.iterations = first, last, iterations

    def wanted(self, cost: Cost, choices: Choices, moment: Moment, possible: BoolArray) -> IntArray:
        bits = bits_at(self.first, self.last, moment.iteration, self.iterations)
        most, vectors = bits * moment.dim / 8 + _HEADER, _Sized(choices)
        if choices.counts != "components":  # it waits until a message of that size is paid for
            possible = possible & pays(
                cost(size_in(choices.counts, 0, np.full(moment.shape, most))), self.available
            )
        low = np.zeros(moment.shape, dtype=np.int64)
        high = choices.at_most(np.where(possible, moment.dim, 0))
        middle = high
        while (low < high).any():
            fits = vectors.nbytes(middle) <= most
            low, high = np.where(fits, middle, low), np.where(fits, high, np.maximum(low, middle - 1))
            middle = (low + high + 1) // 2
        return low


class _Sized:
    """The sizes of messages, which all choices that a sender asks about have."""

    def __init__(self, choices: Any) -> None:
        self._choices = choices

    def nbytes(self, amounts: IntArray) -> IntArray:
        return np.asarray(self._choices.nbytes(amounts))


@dataclass(frozen=True)
class AdaptiveBits:
    """Send messages of `first_bits` for each parameter at first and `last_bits` at the end, when paid for.

    After AdaQuantFL (Jhunjhunwala et al., 2021), whose levels grow as the loss falls: few bits make fast
    progress at first, and more are needed for the same error later. Deviation: the loss of all clients is
    known to nobody here, so the bits grow with the iterations. Never over budget; clients compute with the
    probability that spends their budget on average.
    """

    first_bits: Positive = 2.0
    last_bits: Positive = 8.0
    decides: ClassVar[tuple[str, ...]] = KNOBS
    keeps_budgets: ClassVar[bool] = True
    uses_horizon: ClassVar[bool] = True

    def compute_rule(self, scope: Scope) -> ComputeRule:
        return compute_on_average(scope)

    def send_rule(self, scope: Scope) -> SendRule:
        return GrowingSend(scope.limits, self.first_bits, self.last_bits, scope.iterations)
