"""One pass through the network for all clients, with the weight gradients kept apart.

All clients share x, so one forward and one backward pass over all their samples give every
layer's input and the gradient of its output, from which follow the weight gradients by client.
`OnePass` leaves both passes to autograd and captures what it needs by hooks. `Chain` writes both
out for plain chains of layers, for which the bookkeeping of autograd costs as much as the backward
pass itself. Both are here so that an iteration of a chain runs through this file alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.models.pooling import Pool
from flexfl.models.steps import in_order, steps_of
from flexfl.sim.gradients.apart import loss_may_draw, may_draw, unmodified
from flexfl.sim.gradients.layers import conv_input_gradient, conv_supported, rule_for
from flexfl.sim.gradients.pieces import Dense, Outer, OverSamples, Piece, Pieces, Sum


class OnePass:
    """Serve modules whose trainable parameters all belong to layers with a rule, by hooks.

    A layer that is used several times, or shares its parameters with another, adds up. What hooks
    cannot see (a weight used past its layer, samples that influence each other) is for `choose`
    to rule out before this path is taken.

    Attributes:
        draws: whether a pass may draw random numbers from torch's generator.
        activation_numbers: how many numbers the last pass kept as activations.
    """

    name = "one pass"

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._by_hand = loss is functional.cross_entropy
        self._names = {id(p): name for name, p in model.module.named_parameters() if name in model.names}
        self._params = [p for p in model.module.parameters() if id(p) in self._names]
        self._layers = [
            module
            for module in model.module.modules()
            if any(id(p) in self._names for p in module.parameters(recurse=False))
        ]
        self._rules = {layer: rule_for(layer) for layer in self._layers}
        # An output that hooks capture must not be overwritten.
        self._in_place = [m for m in model.module.modules() if getattr(m, "inplace", False)]
        self._convolves = any(isinstance(layer, nn.Conv2d) for layer in self._layers)
        self._handles: list[Any] = []
        self._capturing = False
        self._captured: list[tuple[nn.Module, Tensor, Tensor]] = []
        self.draws = may_draw(model.module) or loss_may_draw(loss)
        self.activation_numbers = 0

    def why_not(self) -> str | None:
        """Say why this path cannot compute the gradients of this module; None if it can."""
        for layer, rule in self._rules.items():
            if rule is None:
                return f"{type(layer).__name__} has parameters of its own or options without a rule"
        return None

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]:
        """Compute the gradients of all clients for their minibatches.

        Args:
            x: inputs (M, B, …).
            y: labels (M, B, …).

        Returns:
            The gradients by parameter, and the sum of the M mean losses.
        """
        if not self._handles:
            self._attach()
        self._captured, self.activation_numbers, self._capturing = [], 0, True
        try:
            outputs = self._model.module(self._one_batch(x))
            total, g = self._loss_and_gradient(outputs, y)
            torch.autograd.backward([outputs], [g])
        finally:
            self._capturing = False
        pieces: Pieces = {}
        with torch.no_grad():
            for layer, given, g in self._captured:
                self._add_layer(pieces, layer, given, g, len(x))
        self._add_unused(pieces, len(x))
        return pieces, float(total.detach())

    def release(self) -> None:
        """Leave the module as it was; the next call takes hold of it again."""
        if not self._handles:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for parameter in self._params:
            parameter.requires_grad_(True)
        for module in self._in_place:
            module.inplace = True  # type: ignore[assignment]

    def _attach(self) -> None:
        """Put hooks on the layers and spare autograd the weight gradients, until `release`."""
        self._handles = [layer.register_forward_hook(self._capture) for layer in self._layers]
        for parameter in self._params:
            parameter.requires_grad_(False)
        for module in self._in_place:
            module.inplace = False  # type: ignore[assignment]

    def _capture(self, layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the layer's input and, once it is known, the gradient of its output."""
        if not self._capturing:
            return
        x = inputs[0].detach()
        self.activation_numbers += x.numel() + output.numel()
        if not output.requires_grad:
            output.requires_grad_(True)
        output.register_hook(lambda g: self._captured.append((layer, x, g)))  # type: ignore[no-untyped-call]

    def _loss_and_gradient(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum over clients of their losses, and its gradient by the outputs."""
        if self._by_hand and outputs.ndim == 2 and not y.is_floating_point():
            return cross_entropy(outputs.detach(), y)
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            by_client = leaf.reshape(*y.shape[:2], *outputs.shape[1:])
            total = vmap(self._loss, randomness="different")(by_client, y).sum()
            (g,) = torch.autograd.grad(total, leaf)
        return total, g

    def _one_batch(self, x: Tensor) -> Tensor:
        """Return all clients' samples as one batch; images with channels last, best for convolutions."""
        x = x.reshape(-1, *x.shape[2:])
        if self._convolves and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _add_layer(self, pieces: Pieces, layer: nn.Module, x: Tensor, g: Tensor, clients: int) -> None:
        """Add the gradients of one layer's trainable parameters."""
        rule = self._rules[layer]
        assert rule is not None
        for parameter, piece in rule(layer, x, g, clients):
            name = self._names.get(id(parameter))
            if name is not None:
                _add(pieces, name, piece)

    def _add_unused(self, pieces: Pieces, clients: int) -> None:
        """Add zeros for parameters that the forward pass did not use."""
        if len(pieces) < len(self._model.names):
            for name, shape in zip(self._model.names, self._model.shapes, strict=True):
                if name not in pieces:
                    pieces[name] = Dense(self._model.params.new_zeros(clients, *shape))


class Chain(OnePass):
    """Serve an nn.Sequential of Linear, Conv2d, ReLU, MaxPool2d and Flatten, without autograd or hooks."""

    name = "one pass (chain)"
    _KINDS = (nn.Linear, nn.ReLU, nn.Flatten, nn.Conv2d, nn.MaxPool2d)

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        super().__init__(model, loss)
        self._steps = steps_of(model.module)
        self._first = next((n for n, step in enumerate(self._steps) if step in self._rules), 0)
        # The names of weight and bias of each linear layer; None for one that is not trained.
        self._linear_names = {
            layer: (self._names.get(id(layer.weight)), self._names.get(id(layer.bias)))
            for layer in self._layers
            if isinstance(layer, nn.Linear)
        }

    def why_not(self) -> str | None:
        """Say why this module is not such a chain; None if it is."""
        for part in in_order(self._model.module):
            unsupported = isinstance(part, nn.Conv2d) and not conv_supported(part)
            if type(part) not in self._KINDS or unsupported:
                return f"{type(part).__name__} is not a step that is written out"
        if not all(unmodified(part) for part in self._model.module.modules()):
            return "a step has hooks, or a method that was replaced"
        if not self._layers or not self._can_pool():
            return "its pools cannot be written out"
        return None

    def _can_pool(self) -> bool:
        """Return whether each pool follows a convolution: it overwrites its input."""
        pools = [step for step in self._steps if isinstance(step, nn.MaxPool2d | Pool)]
        after = [step for before, step in pairwise(self._steps) if isinstance(before, nn.Conv2d)]
        on_cpu = self._model.params.device.type == "cpu"
        return all(isinstance(pool, Pool) and pool in after and on_cpu for pool in pools)

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]:
        """Compute the gradients of all clients, as `OnePass` does."""
        clients, first, pieces = len(x), self._first, Pieces()
        inputs = [self._one_batch(x)]  # of each step; last, the outputs of the network
        for step in self._steps:
            inputs.append(step.forward(inputs[-1]))
        self.activation_numbers = sum(a.numel() for a in inputs)

        total, g = self._loss_and_gradient(inputs[-1], y)
        for place in range(len(self._steps) - 1, first - 1, -1):
            step, given = self._steps[place], inputs[place]  # g is the gradient of its output
            if isinstance(step, nn.Linear):
                self._add_linear(pieces, step, given, g, clients)
                if place > first:
                    g = g @ step.weight
            elif isinstance(step, nn.ReLU):
                g = torch.ops.aten.threshold_backward(g, given, 0)
            elif isinstance(step, nn.Flatten):
                g = g.reshape(given.shape)
            elif isinstance(step, Pool):
                g = step.backward(g, given, inputs[place + 1])
            elif isinstance(step, nn.Conv2d):
                if step in self._rules:
                    self._add_layer(pieces, step, given, g, clients)
                if place > first:
                    g = conv_input_gradient(step, given, g)
        self._add_unused(pieces, clients)
        return pieces, float(total)

    def _add_linear(self, pieces: Pieces, layer: nn.Linear, x: Tensor, g: Tensor, clients: int) -> None:
        """Add the gradients of a linear layer, as `layers.linear` does."""
        weight, bias = self._linear_names.get(layer, (None, None))
        g = g.reshape(clients, -1, layer.out_features)  # (M, K, out)
        if weight is not None:
            _add(pieces, weight, Outer(x.reshape(clients, -1, layer.in_features), g))
        if bias is not None:
            _add(pieces, bias, OverSamples(g))


def _add(pieces: Pieces, name: str, piece: Piece) -> None:
    """Add `piece` to the gradients of the parameter `name`."""
    pieces[name] = Sum(pieces[name], piece) if name in pieces else piece


def cross_entropy(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over clients of their mean cross-entropy, and its gradient (softmax − one-hot)/B.

    Transposed, since torch is several times faster along long rows than along rows of ten classes.

    Args:
        outputs: (M·B, C).
        y: labels (M, B).
    """
    labels, each = y.reshape(1, -1), y.shape[1]
    log_probs = torch.log_softmax(outputs.t().contiguous(), dim=0)
    total = log_probs.gather(0, labels).sum() / -each
    probs = log_probs.exp_()
    g = probs.scatter_add_(0, labels, probs.new_full(labels.shape, -1.0)).div_(each)
    return total, g.t()
