"""Weight gradients kept apart by client, one file for each kind of layer.

A layer sees the samples of M clients in one batch, B each, in the order of the clients. Given its
input and the gradient of its output, a rule yields each parameter with a maker of its gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from flexfl.sim.gradients.layers.conv import conv, conv_supported
from flexfl.sim.gradients.layers.embedding import embedding, embedding_supported
from flexfl.sim.gradients.layers.linear import linear
from flexfl.sim.gradients.layers.norm import group_norm, layer_norm
from flexfl.sim.gradients.pieces import Found

Rule = Callable[..., Found]
"""(module, inputs (M·B, …), output gradients (M·B, …), M) → each parameter and its maker."""


@dataclass(frozen=True)
class Layer:
    rule: Rule
    supported: Callable[..., bool] = lambda module: True


LAYERS: dict[type[nn.Module], Layer] = {
    nn.Linear: Layer(linear),
    nn.Conv1d: Layer(conv, conv_supported),
    nn.Conv2d: Layer(conv, conv_supported),
    nn.Embedding: Layer(embedding, embedding_supported),
    nn.LayerNorm: Layer(layer_norm),
    nn.GroupNorm: Layer(group_norm),
}


def rule_for(module: nn.Module) -> Rule | None:
    """The rule of exactly this type; a subclass may compute anything."""
    layer = LAYERS.get(type(module))
    return layer.rule if layer is not None and layer.supported(module) else None
