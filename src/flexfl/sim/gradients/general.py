"""Gradients by client for any module: vmap of the gradient, or a plain loop over clients."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.pieces import Dense, Pieces


class _General:
    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        frozen = {name: p.detach() for name, p in model.module.named_parameters() if not p.requires_grad}
        self._fixed = frozen | dict(model.module.named_buffers())
        self._places = _places(model.module)

    def _of_client(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        values = {**params, **self._fixed}
        # Without torch's own care for shared tensors, which leaves a module that is in two places changed.
        given = {place: values[name] for place, name in self._places.items()}
        outputs = functional_call(self._model.module, given, (x,), tie_weights=False)
        return self._loss(outputs, y)


def _places(module: nn.Module) -> dict[str, str]:
    """Where parameters and buffers are, each module once, and the name that the whole module has for them."""
    named = [*module.named_parameters(), *module.named_buffers()]
    names = {id(tensor): name for name, tensor in named}
    return {
        f"{path}.{own}" if path else own: names[id(tensor)]
        for path, part in module.named_modules()
        for own, tensor in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
    }


class Vmapped(_General):
    """All clients at once, for modules that vmap can trace."""

    name = "vmap"

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]:
        by_client = vmap(grad_and_value(self._of_client), in_dims=(None, 0, 0), randomness="different")
        grads, losses = by_client(self._model.views(), x, y)
        return {name: Dense(g) for name, g in grads.items()}, float(losses.sum())


class Looped(_General):
    """One client after another, by plain autograd: slow, and right for every module."""

    name = "loop"

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]:
        grads: dict[str, list[Tensor]] = {name: [] for name in self._model.names}
        total = 0.0
        for of_client in zip(x, y, strict=True):
            params = {name: view.detach().requires_grad_() for name, view in self._model.views().items()}
            loss = self._of_client(params, *of_client)
            total += float(loss.detach())
            found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
            for (name, p), g in zip(params.items(), found, strict=True):
                grads[name].append(torch.zeros_like(p) if g is None else g)
        return {name: Dense(torch.stack(listed)) for name, listed in grads.items()}, total
