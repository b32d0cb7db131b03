"""The pass of `one_pass` for plain chains of layers, written out: no autograd, no hooks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.models.pooling import Pool
from flexfl.models.steps import hooked, in_order, steps_of
from flexfl.sim.gradients.layers.conv import conv_supported
from flexfl.sim.gradients.one_pass import OnePass, Seen

_KINDS = (nn.Linear, nn.ReLU, nn.Flatten, nn.Conv2d, nn.MaxPool2d)


class Chain(OnePass):
    """For an nn.Sequential of Linear, Conv2d, ReLU, MaxPool2d and Flatten with nothing hooked to them.

    For small networks the bookkeeping of autograd costs as much as the backward pass itself; for
    convolutions, what lies between them costs as much as they do.
    """

    name = "one pass (chain)"

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        super().__init__(model, loss)
        self._parts = list(in_order(model.module))
        self._steps = steps_of(model.module)
        self._first = next((n for n, step in enumerate(self._steps) if step in self._layers), 0)

    @property
    def applies(self) -> bool:
        watched = any(hooked(part) for part in self._model.module.modules())
        known = all(type(part) in _KINDS and _plain(part) for part in self._parts)
        return bool(self._layers) and not watched and known and self._can_pool

    @property
    def _can_pool(self) -> bool:
        """Pools write over what comes in, so that must be a convolution's own."""
        pools = [step for step in self._steps if isinstance(step, nn.MaxPool2d | Pool)]
        after = [step for before, step in pairwise(self._steps) if isinstance(before, nn.Conv2d)]
        on_cpu = self._model.params.device.type == "cpu"
        return all(isinstance(pool, Pool) and pool in after and on_cpu for pool in pools)

    @torch.no_grad()
    def _pass(self, x: Tensor, y: Tensor) -> tuple[list[Seen], Tensor]:
        passed = [self._together(x)]
        for step in self._steps:
            passed.append(step.forward(passed[-1]))
        self.activation_numbers = sum(a.numel() for a in passed)
        total, g = self._loss_and_gradient(passed[-1], y)
        seen: list[Seen] = []
        for place in range(len(self._steps) - 1, self._first - 1, -1):
            step, given = self._steps[place], passed[place]
            if isinstance(step, nn.Linear | nn.Conv2d):
                if step in self._layers:
                    seen.append((step, given, g))
                if place > self._first:
                    g = g @ step.weight if isinstance(step, nn.Linear) else _through(step, given, g)
            elif isinstance(step, nn.ReLU):
                g = torch.ops.aten.threshold_backward(g, given, 0)
            elif isinstance(step, Pool):
                g = step.backward(g, given, passed[place + 1])
            else:
                g = g.reshape(given.shape)
        return seen, total


def _plain(part: nn.Module) -> bool:
    return not isinstance(part, nn.Conv2d) or conv_supported(part)


def _through(layer: nn.Conv2d, x: Tensor, g: Tensor) -> Tensor:
    """The gradient by the input of a convolution."""
    how = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups, [True, False, False])
    through: Tensor = torch.ops.aten.convolution_backward(g, x, layer.weight, None, *how)[0]
    return through
