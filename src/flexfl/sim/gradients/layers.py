"""Weight gradients kept apart by client, one rule for each kind of layer.

A layer sees the samples of M clients in one batch, B each, in the order of the clients. Given its
input x (M·B, …) and the gradient g of its output (M·B, …), a rule yields each of the layer's
parameters with its gradients by client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from flexfl.sim.gradients.pieces import Dense, Outer, OverSamples, Piece

ParameterGradients = Iterator[tuple[Tensor, Piece]]
"""Each parameter of a layer with its gradients by client."""

Rule = Callable[..., ParameterGradients]
"""(layer, x, g, M) → the gradients of the layer's parameters."""

Conv = nn.Conv1d | nn.Conv2d


def linear(layer: nn.Linear, x: Tensor, g: Tensor, clients: int) -> ParameterGradients:
    """Yield ∂W = gᵀ·x and ∂b = Σ g over each client's rows, for y = x·Wᵀ + b."""
    x = x.reshape(clients, -1, layer.in_features)  # (M, K, in)
    g = g.reshape(clients, -1, layer.out_features)  # (M, K, out)
    yield layer.weight, Outer(x, g)
    if layer.bias is not None:
        yield layer.bias, OverSamples(g)


def conv(layer: Conv, x: Tensor, g: Tensor, clients: int) -> ParameterGradients:
    """Yield torch's own weight gradient over one client's samples at a time, and ∂b = Σ g.

    The bias gradient is not torch's: with channels last, this sum takes a third of the time.
    """
    shape = (layer.stride, layer.padding, layer.dilation, False, [0] * len(layer.stride), layer.groups)
    weights = [
        torch.ops.aten.convolution_backward(g_n, x_n, layer.weight, None, *shape, [False, True, False])[1]
        for x_n, g_n in zip(x.chunk(clients), g.chunk(clients), strict=True)
    ]
    yield layer.weight, Dense(torch.stack(weights))
    if layer.bias is not None:
        yield layer.bias, Dense(g.movedim(1, -1).reshape(clients, -1, layer.out_channels).sum(dim=1))


def conv_supported(layer: Conv) -> bool:
    """Return whether zeros are padded, as many as given; other modes pad before they convolve."""
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def conv_input_gradient(layer: nn.Conv2d, x: Tensor, g: Tensor) -> Tensor:
    """Return the gradient with respect to a convolution's input."""
    options = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups, [True, False, False])
    by_input: Tensor = torch.ops.aten.convolution_backward(g, x, layer.weight, None, *options)[0]
    return by_input


def embedding(layer: nn.Embedding, x: Tensor, g: Tensor, clients: int) -> ParameterGradients:
    """Yield ∂W[i] = Σ g over the positions of each client that looked up row i."""
    rows, width = layer.num_embeddings, layer.embedding_dim
    indices, g = x.reshape(clients, -1), g.reshape(clients, -1, width)
    if layer.padding_idx is not None:
        g = g.masked_fill((indices == layer.padding_idx)[..., None], 0)

    row = (indices + rows * torch.arange(clients, device=x.device)[:, None]).reshape(-1)
    sums = torch.zeros(clients * rows, width, dtype=g.dtype, device=g.device)
    sums.index_add_(0, row, g.reshape(-1, width))
    yield layer.weight, Dense(sums.view(clients, rows, width))


def embedding_supported(layer: nn.Embedding) -> bool:
    """Return whether rows are only looked up, not rescaled on the way."""
    return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse


def layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor, clients: int) -> ParameterGradients:
    """Yield ∂w = Σ g·x̂ and ∂b = Σ g over each client's samples and positions, for y = x̂·w + b."""
    shape = layer.normalized_shape
    if layer.weight is not None:
        normalised = functional.layer_norm(x, shape, eps=layer.eps)
        yield layer.weight, Dense((g * normalised).reshape(clients, -1, *shape).sum(dim=1))
    if layer.bias is not None:
        yield layer.bias, Dense(g.reshape(clients, -1, *shape).sum(dim=1))


def group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor, clients: int) -> ParameterGradients:
    """Yield the same as `layer_norm`, by channel."""

    def by_channel(values: Tensor) -> Tensor:
        return values.reshape(clients, -1, layer.num_channels, values[0, 0].numel()).sum(dim=(1, 3))

    if layer.weight is not None:
        normalised = functional.group_norm(x, layer.num_groups, eps=layer.eps)
        yield layer.weight, Dense(by_channel(g * normalised))
    if layer.bias is not None:
        yield layer.bias, Dense(by_channel(g))


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: conv,
    nn.Conv2d: conv,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
}


def rule_for(layer: nn.Module) -> Rule | None:
    """Return the rule of exactly this type, or None; a subclass may compute anything."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and not conv_supported(layer):
        return None
    if isinstance(layer, nn.Embedding) and not embedding_supported(layer):
        return None
    return _RULES.get(type(layer))
