"""One pass through the network for all clients, with the weight gradients kept apart.

All clients share x, so one forward and one backward pass over all their samples give every
layer's input and the gradient of its output; hooks take them down. Autograd is spared the weight
gradients, which would be summed over clients; `layers` makes them by client instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.layers import rule_for
from flexfl.sim.gradients.pieces import Dense, Pieces, Sum

Seen = tuple[nn.Module, Tensor, Tensor]
"""A layer, its input (M·B, …) and the gradient of its output (M·B, …)."""


class OnePass:
    """For modules whose trainable parameters all belong to layers with a rule.

    A layer that is used several times, or shares its parameters with another, adds up. What hooks
    cannot see (a weight used past its layer, samples that mix in the batch) is found out by
    `choose`, which compares with autograd before this path is taken.
    """

    name = "one pass"

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._names = {id(p): name for name, p in model.module.named_parameters() if name in model.names}
        self._params = [p for p in model.module.parameters() if id(p) in self._names]
        self._layers = [
            module
            for module in model.module.modules()
            if any(id(p) in self._names for p in module.parameters(recurse=False))
        ]
        # An output that hooks watch must not be overwritten.
        self._in_place = [m for m in model.module.modules() if getattr(m, "inplace", False)]
        self._convolves = any(isinstance(layer, nn.Conv2d) for layer in self._layers)
        self._handles: list[Any] = []
        self._watching = False
        self._seen: list[Seen] = []
        self.activation_numbers = 0

    @property
    def applies(self) -> bool:
        return all(rule_for(layer) is not None for layer in self._layers)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]:
        seen, total = self._pass(x, y)
        return self._gather(seen, len(x)), float(total.detach())

    def _pass(self, x: Tensor, y: Tensor) -> tuple[list[Seen], Tensor]:
        if not self._handles:
            self._hold()
        self._seen, self.activation_numbers, self._watching = [], 0, True
        try:
            outputs = self._model.module(self._together(x))
            total, g = self._loss_and_gradient(outputs, y)
            torch.autograd.backward([outputs], [g])
            return self._seen, total
        finally:
            self._watching = False

    def _loss_and_gradient(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The sum over clients of their losses, and its gradient by the outputs."""
        if self._loss is functional.cross_entropy and outputs.ndim == 2 and not y.is_floating_point():
            return cross_entropy(outputs.detach(), y)
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            by_client = leaf.reshape(*y.shape[:2], *outputs.shape[1:])
            total = vmap(self._loss, randomness="different")(by_client, y).sum()
            (g,) = torch.autograd.grad(total, leaf)
        return total, g

    def _together(self, x: Tensor) -> Tensor:
        """The samples of all clients as one batch; images with channels last, which convolutions like."""
        x = x.reshape(-1, *x.shape[2:])
        if self._convolves and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _gather(self, seen: list[Seen], clients: int) -> Pieces:
        pieces: Pieces = {}
        with torch.no_grad():
            for module, x, g in seen:
                rule = rule_for(module)
                assert rule is not None
                for parameter, piece in rule(module, x, g, clients):
                    name = self._names.get(id(parameter))
                    if name is not None:
                        pieces[name] = Sum(pieces[name], piece) if name in pieces else piece
        for name, shape in zip(self._model.names, self._model.shapes, strict=True):
            if name not in pieces:  # the forward pass did not use it
                pieces[name] = Dense(self._model.params.new_zeros(clients, *shape))
        return pieces

    def _hold(self) -> None:
        """Hooks on the layers, and the parameters out of autograd's sight, until `release`."""
        self._handles = [layer.register_forward_hook(self._note) for layer in self._layers]
        for parameter in self._params:
            parameter.requires_grad_(False)
        for module in self._in_place:
            module.inplace = False  # type: ignore[assignment]

    def release(self) -> None:
        """Leave the module as it was."""
        for handle in self._handles:
            handle.remove()
            for parameter in self._params:
                parameter.requires_grad_(True)
            for module in self._in_place:
                module.inplace = True  # type: ignore[assignment]
        self._handles = []

    def _note(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if not self._watching:
            return
        x = inputs[0].detach()
        self.activation_numbers += x.numel() + output.numel()
        if not output.requires_grad:
            output.requires_grad_(True)
        output.register_hook(lambda g: self._seen.append((module, x, g)))  # type: ignore[no-untyped-call]


def cross_entropy(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over clients of their mean cross-entropy, and its gradient (softmax − one-hot)/B.

    For outputs (M·B, C) and labels (M, B). Transposed, since the library is several times faster
    along long rows than along rows of ten classes.
    """
    labels, each = y.reshape(1, -1), y.shape[1]
    log_probs = torch.log_softmax(outputs.t().contiguous(), dim=0)
    total = log_probs.gather(0, labels).sum() / -each
    probs = log_probs.exp_()
    g = probs.scatter_add_(0, labels, probs.new_full(labels.shape, -1.0)).div_(each)
    return total, g.t()
