"""Gradients of all clients that compute, kept apart by client.

All clients share the parameters x, so their minibatches go through the network together.
`vmap` of the gradient does that for almost any module; a plain loop over clients is there for
those it cannot trace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from flexfl.arrays import FloatArray, IntArray
from flexfl.models.flat import FlatModel
from flexfl.sim import kernels

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs and labels of one minibatch → its mean loss."""

log = logging.getLogger("flexfl")

_CHUNK_BYTES = 64 * 2**20


class ClientGradients:
    """Adds −(η/q)·g of each client straight into its residual row."""

    def __init__(self, model: FlatModel, loss: Loss, example: tuple[Tensor, Tensor]) -> None:
        self._model, self._loss = model, loss
        self._frozen = {
            name: p.detach() for name, p in model.module.named_parameters() if not p.requires_grad
        } | dict(model.module.named_buffers())
        itemsize = model.params.element_size()
        self._chunk = max(1, _CHUNK_BYTES // (itemsize * model.dim))
        self.path = "vmap"
        try:
            self._vmapped(*(tensor[:1] for tensor in example))
        except (RuntimeError, ValueError, NotImplementedError) as error:
            self.path = "loop"
            reason = str(error).splitlines()[0]
            log.info("gradients: one client at a time, since vmap cannot trace the model (%s)", reason)

    def accumulate(
        self, residual: NDArray[Any], clients: IntArray, step: FloatArray, x: Tensor, y: Tensor
    ) -> FloatArray:
        """residual[clients] += step·g; x is (M, B, …), y (M, B, …), step (M,). Returns losses (M,)."""
        losses = np.empty(len(clients))
        compute = self._vmapped if self.path == "vmap" else self._looped
        for begin in range(0, len(clients), self._chunk):
            part = slice(begin, begin + self._chunk)
            grads, values = compute(x[part], y[part])
            losses[part] = values.numpy()
            for name, place in zip(self._model.names, self._model.slices, strict=True):
                rows = grads[name].reshape(len(values), -1).numpy()
                kernels.add_rows(residual, clients[part], place.start, step[part], rows)
        return losses

    def _loss_of(self, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(self._model.module, {**params, **self._frozen}, (x,))
        return self._loss(outputs, y)

    def _vmapped(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        by_client = vmap(grad_and_value(self._loss_of), in_dims=(None, 0, 0), randomness="different")
        grads, losses = by_client(self._model.views(), x, y)
        return grads, losses

    def _looped(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        found = [grad_and_value(self._loss_of)(self._model.views(), *pair) for pair in zip(x, y, strict=True)]
        grads = {name: torch.stack([g[name] for g, _ in found]) for name in self._model.names}
        return grads, torch.stack([value for _, value in found])
