"""LayerNorm and GroupNorm: y = x̂·w + b, with x̂ the normalised input."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from flexfl.sim.gradients.pieces import Dense, Found


def layer_norm(module: nn.LayerNorm, x: Tensor, g: Tensor, clients: int) -> Found:
    """∂w = Σ g·x̂ and ∂b = Σ g over each client's samples and places."""
    shape = module.normalized_shape
    if module.weight is not None:
        normal = functional.layer_norm(x, shape, eps=module.eps)
        yield module.weight, Dense((g * normal).reshape(clients, -1, *shape).sum(dim=1))
    if module.bias is not None:
        yield module.bias, Dense(g.reshape(clients, -1, *shape).sum(dim=1))


def group_norm(module: nn.GroupNorm, x: Tensor, g: Tensor, clients: int) -> Found:
    """The same by channel."""

    def by_channel(values: Tensor) -> Tensor:
        return values.reshape(clients, -1, module.num_channels, values[0, 0].numel()).sum(dim=(1, 3))

    if module.weight is not None:
        normal = functional.group_norm(x, module.num_groups, eps=module.eps)
        yield module.weight, Dense(by_channel(g * normal))
    if module.bias is not None:
        yield module.bias, Dense(by_channel(g))
