"""Loss and accuracy over a whole dataset."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flexfl.data.federated import Federated
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients import Loss

_CHUNK = 1000


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model on the training and the test set of a federation."""

    model: FlatModel
    loss: Loss
    data: Federated

    def __call__(self) -> dict[str, float | None]:
        """train_loss, train_accuracy, test_loss, test_accuracy; None where there is nothing to measure."""
        data = self.data
        train = self._measure(data.train_x, data.train_y)
        test: tuple[float | None, float | None] = (None, None)
        if data.test_x is not None and data.test_y is not None:
            test = self._measure(data.test_x, data.test_y)
        names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        return dict(zip(names, (*train, *test), strict=True))

    @torch.no_grad()
    def _measure(self, x: Tensor, y: Tensor) -> tuple[float, float | None]:
        module, dtype, device = self.model.module, self.model.params.dtype, self.model.params.device
        classes = self.data.classes
        total, correct = 0.0, 0
        training = [part for part in module.modules() if part.training]
        module.eval()
        try:
            for begin in range(0, len(x), _CHUNK):
                inputs, labels = (t[begin : begin + _CHUNK].to(device) for t in (x, y))
                if inputs.is_floating_point():
                    inputs = inputs.to(dtype)
                if labels.is_floating_point():
                    labels = labels.to(dtype)
                outputs = module(inputs)
                total += float(self.loss(outputs, labels)) * len(inputs)
                if classes is not None:
                    correct += int((outputs.argmax(dim=1) == labels).sum())
        finally:
            for part in training:  # each by itself: a part may be in eval mode on purpose
                part.training = True
        return total / len(x), correct / len(x) if classes is not None else None


def default_loss(data: Federated) -> Loss:
    """Cross-entropy for class labels, mean squared error for numbers."""
    if data.train_y.is_floating_point():
        return nn.functional.mse_loss
    return nn.functional.cross_entropy
