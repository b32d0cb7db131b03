"""One minibatch gradient: the paper's local work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flexfl.local.base import Array, Gradient, Memory


@dataclass(frozen=True)
class OneGradient:
    """Δ = −η·g(x), the step of one minibatch gradient (line 6 of Algorithm 1)."""

    gradients: ClassVar[int] = 1

    def change(self, gradient: Gradient, x: Array, eta: float, memory: Memory) -> tuple[Array, Memory]:
        return -eta * gradient(x, 0), memory
