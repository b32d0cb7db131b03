"""Several steps of SGD, as in local SGD and FedAvg."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from flexfl.local.base import Array, Gradient, Memory
from flexfl.parameters import Rule, Whole, above_zero, from_zero

Steps = Annotated[int, Whole(1, "give the number of local steps H")]
LocalRate = Annotated[
    float | None, Rule("must be > 0 and finite", above_zero, "leave it out for the run's", optional=True)
]
Decay = Annotated[float, Rule("must be ≥ 0 and finite", from_zero, "0 is no weight decay")]
Momentum = Annotated[float, Rule("must be in [0, 1)", lambda number: 0 <= number < 1, "0 is no momentum")]


@dataclass(frozen=True)
class LocalSGD:
    """H steps of SGD from x, each on the client's next minibatch: Δ = y_H − x.

    v ← μ·v + g(y) + ω·y and y ← y − η·v, with v = 0 and y = x at the beginning of each iteration, as
    torch.optim.SGD does. With H = 1, and ω = 0, it is the paper's `gradient`. FedAvg (McMahan et al., 2017)
    and Qsparse-local-SGD (Basu et al., 2019) are made of it.

    Attributes:
        steps: H.
        momentum: μ, of the heavy ball.
        weight_decay: ω.
        learning_rate: of the local steps, if it is another than the run's; the run's then scales the change:
            Δ = η·(y_H − x).
    """

    steps: Steps = 5
    momentum: Momentum = 0.0
    weight_decay: Decay = 0.0
    learning_rate: LocalRate = None

    @property
    def gradients(self) -> int:
        """H."""
        return self.steps

    def change(self, gradient: Gradient, x: Array, eta: float, memory: Memory) -> tuple[Array, Memory]:
        # Δ is summed up by itself: y_H − x would lose its last digits to those of x.
        y, v, delta = x, 0.0, 0.0
        inner, outer = (eta, 1.0) if self.learning_rate is None else (self.learning_rate, eta)
        for k in range(self.steps):
            g = gradient(y, k)
            v = self.momentum * v + g if self.momentum else g
            if self.weight_decay:
                v = v + self.weight_decay * y
            delta = delta - inner * v
            y = x + delta
        return outer * delta, memory
