"""A momentum estimate that each client keeps across its computations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flexfl.local.base import Array, Gradient, Memory
from flexfl.parameters import Share


@dataclass(frozen=True)
class ClientMomentum:
    """Δ = −η·m with m ← (1 − a)·m + a·g(x), which each client keeps (D numbers for each client).

    The first m is the first gradient. So does EF21-SGDM (Fatkhullin et al., 2023) at its clients; here it
    meets the paper's error feedback, not EF21's. An m is as old as the client's last computation.

    Attributes:
        share: a, what the new gradient counts; 1 is the paper's `gradient`.
    """

    gradients: ClassVar[int] = 1
    share: Share = 0.1

    def begin(self, x: Array) -> Memory:
        """Return m = 0, and that there is none yet."""
        return {"mean": 0 * x, "begun": 0 * x[..., :1]}

    def change(self, gradient: Gradient, x: Array, eta: float, memory: Memory) -> tuple[Array, Memory]:
        m, begun = memory["mean"], memory["begun"]
        a = 1 - (1 - self.share) * begun  # 1 for the first
        m = m + a * (gradient(x, 0) - m)
        return -eta * m, {"mean": m, "begun": 0 * begun + 1}
