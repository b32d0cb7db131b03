"""Linear: y = x·Wᵀ + b."""

from __future__ import annotations

from torch import Tensor, nn

from flexfl.sim.gradients.pieces import Found, Outer, OverSamples


def linear(module: nn.Linear, x: Tensor, g: Tensor, clients: int) -> Found:
    """∂W = gᵀ·x and ∂b = Σ g over each client's rows."""
    x = x.reshape(clients, -1, module.in_features)  # (M, K, in)
    g = g.reshape(clients, -1, module.out_features)  # (M, K, out)
    yield module.weight, Outer(x, g)
    if module.bias is not None:
        yield module.bias, OverSamples(g)
