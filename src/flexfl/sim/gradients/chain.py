"""The pass of `one_pass` for plain chains of layers, written out: no autograd, no hooks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.one_pass import OnePass, Seen

_KINDS = (nn.Linear, nn.ReLU, nn.Flatten)


class Chain(OnePass):
    """For an nn.Sequential of Linear, ReLU and Flatten with nothing hooked to them.

    For small networks the bookkeeping of autograd costs as much as the backward pass itself.
    """

    name = "one pass (chain)"

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        super().__init__(model, loss)
        self._chain = list(_in_order(model.module))
        self._first = next((n for n, part in enumerate(self._chain) if part in self._layers), 0)

    @property
    def applies(self) -> bool:
        parts = list(self._model.module.modules())
        hooked = any(p._forward_hooks or p._forward_pre_hooks or p._backward_hooks for p in parts)
        return bool(self._layers) and not hooked and all(type(part) in _KINDS for part in self._chain)

    @torch.no_grad()
    def _pass(self, x: Tensor, y: Tensor) -> tuple[list[Seen], Tensor]:
        a, inputs = self._together(x), []
        for part in self._chain:
            inputs.append(a)
            a = part.forward(a)
        self.activation_numbers = sum(given.numel() for given in inputs) + a.numel()
        total, g = self._loss_and_gradient(a, y)
        seen: list[Seen] = []
        for place in range(len(inputs) - 1, self._first - 1, -1):
            part, given = self._chain[place], inputs[place]
            if isinstance(part, nn.Linear):
                seen.append((part, given, g))
                if place > self._first:
                    g = g @ part.weight
            elif isinstance(part, nn.ReLU):
                g = torch.ops.aten.threshold_backward(g, given, 0)
            else:
                g = g.reshape(given.shape)
        return seen, total


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _in_order(part)
    else:
        yield module
