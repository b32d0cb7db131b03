"""Several steps of AdamW, as transformers are trained with."""

from __future__ import annotations

from dataclasses import dataclass

from flexfl.local.base import Array, Gradient, Memory
from flexfl.local.sgd import Decay, LocalRate, Momentum, Steps
from flexfl.parameters import Positive


@dataclass(frozen=True)
class LocalAdamW:
    """H steps of AdamW from x, each on the client's next minibatch: Δ = y_H − x.

    As torch.optim.AdamW (Loshchilov and Hutter, 2019), with g = g(y):

        m ← β₁·m + (1 − β₁)·g,   v ← β₂·v + (1 − β₂)·g²,   t ← t + 1
        y ← y − η·(m̂ / (√v̂ + ε) + ω·y)   where m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ)

    η is the `learning_rate` of the run, which for AdamW is much smaller than for SGD, unless the steps have
    their own.

    Attributes:
        steps: H.
        beta1: β₁.
        beta2: β₂.
        eps: ε.
        weight_decay: ω.
        persistent: each client keeps m, v and t from one computation to its next (2·D numbers for each
            client); else they begin at zero in each iteration.
        learning_rate: of the local steps, if it is another than the run's; the run's then scales the change:
            Δ = η·(y_H − x).
    """

    steps: Steps = 5
    beta1: Momentum = 0.9
    beta2: Momentum = 0.999
    eps: Positive = 1e-8
    weight_decay: Decay = 0.01
    persistent: bool = False
    learning_rate: LocalRate = None

    @property
    def gradients(self) -> int:
        """H."""
        return self.steps

    def begin(self, x: Array) -> Memory:
        """Return m = v = 0 and t = 0, if clients keep them."""
        return _zeros(x) if self.persistent else {}

    def change(self, gradient: Gradient, x: Array, eta: float, memory: Memory) -> tuple[Array, Memory]:
        start = memory or _zeros(x)
        m, v, t = start["mean"], start["square"], start["steps"]
        inner, outer = (eta, 1.0) if self.learning_rate is None else (self.learning_rate, eta)
        y, delta = x, 0.0
        for k in range(self.steps):
            g = gradient(y, k)
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * (g * g)
            t = t + 1
            scale = (v / (1 - self.beta2**t)) ** 0.5 + self.eps
            delta = delta - inner * (m / (1 - self.beta1**t) / scale + self.weight_decay * y)
            y = x + delta
        return outer * delta, {"mean": m, "square": v, "steps": t} if self.persistent else memory


def _zeros(x: Array) -> Memory:
    return {"mean": 0 * x, "square": 0 * x, "steps": 0 * x[..., :1]}
