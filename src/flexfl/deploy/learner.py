"""One client's network and samples: its gradients and how good a model is on its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flexfl.data.augment import crop_flip
from flexfl.data.datasets import load_federated, load_own
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.evaluate import Evaluator
from flexfl.models.generator import seed_generator
from flexfl.prepare import prepare
from flexfl.spec.schema import Spec
from flexfl.streams import Streams

Vector = NDArray[Any]


class Learner:
    """Client `place` of `spec.data.clients`; draws the same minibatches as in a simulation."""

    def __init__(self, spec: Spec, place: int, own_file: Path | None = None) -> None:
        self._spec, self._place, self._streams = spec, place, Streams(spec.train.seed)
        self.data = load_own(spec.data, own_file) if own_file else _part(spec, place)
        self.model, self._loss = prepare(spec, self.data)
        named = dict(self.model.module.named_parameters())
        self._trained = [named[name] for name in self.model.names]
        self._batches = Minibatches(self.data.parts, spec.train.batch_size, self._streams, first=place)
        self._evaluate = Evaluator(self.model, self._loss, self.data)

    def gradient(self, params: Vector, used: int, iteration: int) -> tuple[Vector, float]:
        """g_n(x) on minibatch number `used`, and its loss."""
        self._set(params)
        samples = torch.from_numpy(self._batches.peek(0, used))
        device, dtype = self.model.params.device, self.model.params.dtype
        x, y = self.data.train_x[samples], self.data.train_y[samples].to(device)
        if self._spec.data.augment == "crop-flip":
            place, total = np.array([self._place]), self._spec.data.clients
            x = crop_flip(x[None], place, total, self._streams, iteration)[0]
        seed_generator(self._streams.torch_seed(f"dropout/{self._place}", iteration), device)
        loss = self._loss(self.model.module(x.to(device, dtype)), y.to(dtype) if y.is_floating_point() else y)
        grads = torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)
        return torch.cat([grad.reshape(-1) for grad in grads]).cpu().numpy(), float(loss.detach())

    def evaluate(self, params: Vector) -> dict[str, float]:
        """train_loss and train_accuracy over all samples of this client, and how many these are."""
        self._set(params)
        found = {name: value for name, value in self._evaluate().items() if value is not None}
        return found | {"samples": float(len(self.data.train_x))}

    def _set(self, params: Vector) -> None:
        self.model.params.copy_(torch.from_numpy(params))


def _part(spec: Spec, place: int) -> Federated:
    """That client's part of the spec's dataset, and no more of it."""
    whole = load_federated(spec.data, seed=spec.train.seed)
    mine = torch.from_numpy(whole.parts[place])
    return Federated(whole.train_x[mine], whole.train_y[mine], None, None, (np.arange(len(mine)),))
