"""Local work of one's own: FedProx, whose local steps are pulled back to where they began.

    flexfl run quickstart --set train.local.kind=examples.own_local:Proximal

Each of H steps of SGD goes along g(y) + μ·(y − x) (Li et al., 2020), so that a client with data unlike the
others' does not stray too far from x before it sends. What it sends is Δ = y − x, divided by the probability
q with which it computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from flexfl.parameters import Positive, Whole


@dataclass(frozen=True)
class Proximal:
    """H steps of SGD with a pull μ towards x."""

    steps: Annotated[int, Whole(1, "give the number of local steps H")] = 5
    pull: Positive = 0.1

    @property
    def gradients(self) -> int:
        """H minibatches are used, and a computation costs H gradients."""
        return self.steps

    def change(self, gradient: Any, x: Any, eta: float, memory: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return Δ, and nothing to remember. Only operators: arrays are NumPy's or torch's."""
        y, delta = x, 0.0
        for k in range(self.steps):
            delta = delta - eta * (gradient(y, k) + self.pull * delta)
            y = x + delta
        return delta, memory
