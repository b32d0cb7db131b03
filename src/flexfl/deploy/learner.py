"""One client's network and samples: its gradients, and evaluations of a model on its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flexfl.arrays import IntArray
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.evaluate import Evaluator
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel, seed_generator
from flexfl.streams import Streams
from flexfl.trees import call, converted, rows

Vector = NDArray[Any]
Augment = Callable[[torch.Tensor, IntArray, int, Streams, int, int], torch.Tensor]
"""Varies samples: minibatches (M, B, …) of M clients, which these are, N, streams, iteration, local step."""


class Learner:
    """Client `place` of `clients`; draws the same minibatches as in a simulation.

    Args:
        data: its samples, as a federation of one client.
        model: its network; gradients and evaluations set the parameters.
        loss: of outputs and labels.
        place: which of the clients it is, from 0.
        clients: N.
        batch_size: B.
        streams: of the run.
        augment: how samples are varied; None for not at all.
    """

    def __init__(
        self,
        data: Federated,
        model: FlatModel,
        loss: Loss,
        *,
        place: int,
        clients: int,
        batch_size: int,
        streams: Streams,
        augment: Augment | None = None,
    ) -> None:
        self.data, self.model, self._loss = data, model, loss
        self._place, self._clients, self._streams, self._augment = place, clients, streams, augment
        named = dict(model.module.named_parameters())
        self._trained = [named[name] for name in model.names]
        self._batches = Minibatches(data.parts, batch_size, streams, first=place)
        self._evaluate = Evaluator(model, loss, data)

    def gradient(self, params: Vector, used: int, iteration: int, step: int = 0) -> tuple[Vector, float]:
        """Return g_n(x), (D,), on minibatch number `used` in a local step of an iteration, and its loss."""
        self._set(params)
        samples = torch.from_numpy(self._batches.peek(0, used))
        now = iteration, step
        device, dtype = self.model.params.device, self.model.params.dtype
        x = rows(self.data.train_x, samples)
        if self._augment is not None:
            x = self._augment(x[None], np.array([self._place]), self._clients, self._streams, *now)[0]
        x = converted(x, device, dtype)
        whole = self.data.train_y is self.data.train_x
        y = x if whole else converted(rows(self.data.train_y, samples), device, dtype)
        seed_generator(self._streams.torch_seed(f"dropout/{self._place}", *now), device)
        loss = self._loss(call(self.model.module, x), y)
        grads = torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)
        return torch.cat([grad.reshape(-1) for grad in grads]).cpu().numpy(), float(loss.detach())

    def evaluate(self, params: Vector) -> dict[str, float]:
        """Return train_loss and train_accuracy over all samples of this client, and their number."""
        self._set(params)
        found = {name: value for name, value in self._evaluate().items() if value is not None}
        return found | {"samples": float(self.data.sizes.sum())}

    def _set(self, params: Vector) -> None:
        self.model.params.copy_(torch.from_numpy(params))
