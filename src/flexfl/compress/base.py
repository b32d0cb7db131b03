"""What a rule may know of a vector before it decides how much of it to send."""

from __future__ import annotations

from typing import Protocol

from flexfl.arrays import FloatArray, IntArray, Number


class Magnitudes(Protocol):
    """What a sending rule may ask of the vectors b, shape (..., D), before it decides on k.

    The answers are enough for every rule, and an engine can give them in one fused pass
    without sorting.
    """

    def above(self, cut: Number, enough: Number = 0.0) -> tuple[IntArray, FloatArray]:
        """#{j : |b_j| > cut} and the sum of b_j² over that set; cut and enough are (...).

        A vector whose excess, the sum of b_j² − cut² over that set, stays below `enough` may be
        answered with (0, 0): who asks has no use for it, and it need not be read.
        """
        ...

    def energies(self) -> FloatArray:
        """C with C[..., k] = the sum of the k largest b_j², shape (..., D + 1)."""
        ...
