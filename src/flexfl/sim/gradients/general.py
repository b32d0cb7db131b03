"""Gradients by client for any module: vmap of the gradient, or a plain loop over clients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from flexfl.models.flat import FlatModel

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs and labels of one minibatch → its mean loss."""

Gradients = dict[str, Tensor]
"""By name of the parameter, one gradient for each client, (M, …)."""


class _General:
    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        frozen = {name: p.detach() for name, p in model.module.named_parameters() if not p.requires_grad}
        self._fixed = frozen | dict(model.module.named_buffers())

    def _of_client(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(self._model.module, {**params, **self._fixed}, (x,))
        return self._loss(outputs, y)


class Vmapped(_General):
    """All clients at once, for modules that vmap can trace."""

    name = "vmap"

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Gradients, Tensor]:
        by_client = vmap(grad_and_value(self._of_client), in_dims=(None, 0, 0), randomness="different")
        grads, losses = by_client(self._model.views(), x, y)
        return grads, losses


class Looped(_General):
    """One client after another, by plain autograd: slow, and right for every module."""

    name = "loop"

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Gradients, Tensor]:
        found = [self._one(*pair) for pair in zip(x, y, strict=True)]
        grads = {name: torch.stack([g[name] for g, _ in found]) for name in self._model.names}
        return grads, torch.stack([value for _, value in found])

    def _one(self, x: Tensor, y: Tensor) -> tuple[Gradients, Tensor]:
        params = {name: view.detach().requires_grad_() for name, view in self._model.views().items()}
        value = self._of_client(params, x, y)
        grads = torch.autograd.grad(value, list(params.values()), allow_unused=True)
        filled = {
            name: torch.zeros_like(p) if g is None else g
            for (name, p), g in zip(params.items(), grads, strict=True)
        }
        return filled, value.detach()
