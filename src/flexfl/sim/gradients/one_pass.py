"""One pass through the network for all clients, with the weight gradients kept apart.

All clients share x, so one forward and one backward pass over all their samples give every
layer's input and the gradient of its output; hooks take them down. Autograd is spared the weight
gradients, which would be summed over clients; `layers` makes them by client instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.general import Gradients, Loss
from flexfl.sim.gradients.layers import rule_for


class OnePass:
    """For modules whose trainable parameters all belong to layers with a rule.

    A layer that is used several times, or shares its parameters with another, adds up. What hooks
    cannot see (a weight used past its layer, samples that mix in the batch) is found out by
    `choose`, which compares with autograd before this path is taken.
    """

    name = "one pass"

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        by_parameter = {id(p): name for name, p in model.module.named_parameters()}
        self._names = {key: name for key, name in by_parameter.items() if name in model.names}
        self._params = [p for p in model.module.parameters() if id(p) in self._names]
        self._layers = [
            module
            for module in model.module.modules()
            if any(id(p) in self._names for p in module.parameters(recurse=False))
        ]
        self._seen: list[tuple[nn.Module, Tensor, Tensor]] = []
        self.activation_numbers = 0

    @property
    def applies(self) -> bool:
        return all(rule_for(layer) is not None for layer in self._layers)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Gradients, Tensor]:
        clients, size = x.shape[:2]
        with self._hooked():
            outputs = self._model.module(x.reshape(clients * size, *x.shape[2:]))
            outputs = outputs.reshape(clients, size, *outputs.shape[1:])
            losses = self._losses(outputs, y)
            torch.autograd.backward([losses.sum()])
            return self._gather(clients), losses.detach()

    def _losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean loss of each client, (M,)."""
        if self._loss is functional.cross_entropy and outputs.ndim == 3:
            by_sample = functional.cross_entropy(outputs.flatten(0, 1), y.reshape(-1), reduction="none")
            return by_sample.view(y.shape).mean(dim=1)
        return vmap(self._loss, randomness="different")(outputs, y)

    def _gather(self, clients: int) -> Gradients:
        found: Gradients = {}
        with torch.no_grad():
            for module, x, g in self._seen:
                rule = rule_for(module)
                assert rule is not None
                for parameter, grads in rule(module, x, g, clients):
                    name = self._names.get(id(parameter))
                    if name is not None:
                        found[name] = found[name] + grads if name in found else grads
        for name, shape in zip(self._model.names, self._model.shapes, strict=True):
            if name not in found:  # the forward pass did not use it
                found[name] = torch.zeros(clients, *shape, dtype=self._model.params.dtype)
        return found

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """Take down inputs and output gradients, with parameters out of autograd's sight."""
        self._seen, self.activation_numbers = [], 0
        handles = [layer.register_forward_hook(self._note) for layer in self._layers]
        in_place = [m for m in self._model.module.modules() if getattr(m, "inplace", False)]
        for parameter in self._params:
            parameter.requires_grad_(False)
        for module in in_place:
            # An output that hooks watch must not be overwritten.
            module.inplace = False  # type: ignore[assignment]
        try:
            yield
        finally:
            for module in in_place:
                module.inplace = True  # type: ignore[assignment]
            for parameter in self._params:
                parameter.requires_grad_(True)
            for handle in handles:
                handle.remove()
            self._seen = []

    def _note(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        x = inputs[0].detach()
        self.activation_numbers += x.numel() + output.numel()
        if not output.requires_grad:
            output.requires_grad_(True)
        output.register_hook(lambda g: self._seen.append((module, x, g)))  # type: ignore[no-untyped-call]
        return output
