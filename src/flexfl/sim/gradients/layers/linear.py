"""Linear: y = x·Wᵀ + b."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def linear(module: nn.Linear, x: Tensor, g: Tensor, clients: int) -> Iterator[tuple[Tensor, Tensor]]:
    """∂W = gᵀ·x and ∂b = Σ g over each client's rows: one batched product."""
    g = g.reshape(clients, -1, module.out_features)  # (M, K, out)
    x = x.reshape(clients, -1, module.in_features)  # (M, K, in)
    yield module.weight, torch.bmm(g.transpose(1, 2), x)
    if module.bias is not None:
        yield module.bias, g.sum(dim=1)
