"""Gradients by client for any module: vmap of the gradient, or a plain loop over clients."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.pieces import Dense, Pieces
from flexfl.trees import Tree, arguments, rows, size


class General:
    """What these paths share: the loss of one client as a function of the parameters."""

    draws = True
    activation_numbers = 0

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        # By name, not by requires_grad: the one pass turns that off while it holds the module.
        frozen = {name: p.detach() for name, p in model.module.named_parameters() if name not in model.names}
        self._fixed = frozen | dict(model.module.named_buffers())
        self._locations = _locations(model.module)

    def release(self) -> None:
        """Do nothing: these paths leave the module as it is."""

    def saved_per_sample(self, x: Tree, y: Tree) -> int:
        """Return how many numbers a pass keeps for the gradient by sample, parameters aside."""
        held = {t.data_ptr() for t in [*self._model.module.parameters(), *self._fixed.values()]}
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            kept[tensor.data_ptr()] = tensor.numel()
            return tensor

        params = {name: view.detach().requires_grad_() for name, view in self._model.views().items()}
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self._client_loss(params, rows(x, 0), rows(y, 0))
        total = sum(numbers for place, numbers in kept.items() if place not in held)
        return -(-total // size(rows(x, 0)))

    def _client_loss(self, params: dict[str, Tensor], x: Tree, y: Tree) -> Tensor:
        values = {**params, **self._fixed}
        # Not by torch's option for tied weights: it leaves a module that is in two places changed.
        given = {location: values[name] for location, name in self._locations.items()}
        outputs = functional_call(self._model.module, given, *arguments(x), tie_weights=False)
        return self._loss(outputs, y)


def _locations(module: nn.Module) -> dict[str, str]:
    """Map each location of a parameter or buffer to the one name that the module lists it under.

    A tensor that two submodules share has two locations and one name.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    names = {id(tensor): name for name, tensor in named}
    return {
        f"{path}.{attribute}" if path else attribute: names[id(tensor)]
        for path, part in module.named_modules()
        for attribute, tensor in [
            *part.named_parameters(recurse=False),
            *part.named_buffers(recurse=False),
        ]
    }


class Vmapped(General):
    """All clients at once, for modules that vmap can trace."""

    name = "vmap"

    def __call__(self, x: Tree, y: Tree) -> tuple[Pieces, float]:
        by_client = vmap(grad_and_value(self._client_loss), in_dims=(None, 0, 0), randomness="different")
        grads, losses = by_client(self._model.views(), x, y)
        return {name: Dense(g) for name, g in grads.items()}, float(losses.sum())


class Looped(General):
    """One client after another, by plain autograd: slow, and right for every module."""

    name = "loop"

    def __call__(self, x: Tree, y: Tree) -> tuple[Pieces, float]:
        by_parameter: dict[str, list[Tensor]] = {name: [] for name in self._model.names}
        total = 0.0
        for n in range(size(x)):
            params = {name: view.detach().requires_grad_() for name, view in self._model.views().items()}
            loss = self._client_loss(params, rows(x, n), rows(y, n))
            total += float(loss.detach())
            grads = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
            for (name, p), g in zip(params.items(), grads, strict=True):
                by_parameter[name].append(torch.zeros_like(p) if g is None else g)
        return {name: Dense(torch.stack(listed)) for name, listed in by_parameter.items()}, total
