"""Loss and accuracy over a whole dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from flexfl.data.federated import Federated
from flexfl.models.build import Accuracy, Loss, returned_loss
from flexfl.models.flat import FlatModel
from flexfl.models.steps import steps_of, through
from flexfl.trees import Tree, call, converted, mapped, rows, size

_MOST = 4000
_LAYER_BYTES = 8 * 2**20
"""Most bytes of a layer's output: larger blocks are allocated by the system every time, which is slow."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model on the training and test set of federated data."""

    model: FlatModel
    loss: Loss
    data: Federated
    accuracy: Accuracy | None = None

    def __call__(self) -> dict[str, float | None]:
        """Return train_loss, train_accuracy, test_loss and test_accuracy; None if not applicable.

        Losses and accuracies that the user gives are means over some thousand samples at a time, weighted
        by their number: the mean over all samples if they are means over samples.
        """
        data = self.data
        with _evaluating(self.model.module), torch.no_grad():
            train = self._measure(data.train_x, data.train_y)
            test: tuple[float | None, float | None] = (None, None)
            if data.test_x is not None and data.test_y is not None:
                test = self._measure(data.test_x, data.test_y)
        names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        return dict(zip(names, (*train, *test), strict=True))

    def _measure(self, x: Tree, y: Tree) -> tuple[float, float | None]:
        """Return mean loss and accuracy; no accuracy if labels are not classes."""
        if not self.data.plain or self.accuracy is not None:
            return self._measure_tree(x, y)
        classes, layout, chunk = self.data.classes, self._layout(x), self._samples_at_once(x)
        # In other layouts the next module may not accept a fused pool's output with channels last.
        steps = steps_of(self.model.module) if layout is torch.channels_last else [self.model.module]
        total, correct, has_accuracy = 0.0, 0, classes is not None
        for begin in range(0, len(x), chunk):
            inputs = self._converted(x[begin : begin + chunk]).contiguous(memory_format=layout)
            labels = self._converted(y[begin : begin + chunk])
            outputs = through(steps, inputs)
            if classes is None:
                total += float(self.loss(outputs, labels)) * len(inputs)
            elif self.loss is functional.cross_entropy and outputs.ndim == 2:
                # Transposed: torch is several times faster along long rows than along ten classes.
                log_probs = torch.log_softmax(outputs.t().contiguous(), dim=0)
                total -= float(log_probs.gather(0, labels[None]).sum())
                correct += int((log_probs.max(dim=0).indices == labels).sum())
            else:
                total += float(self.loss(outputs, labels)) * len(inputs)
                # With one logit for two classes, say, only the loss can interpret the output.
                has_accuracy = isinstance(outputs, Tensor) and outputs.ndim == 2
                has_accuracy = has_accuracy and outputs.shape[1] >= classes
                correct += int((outputs.argmax(dim=1) == labels).sum()) if has_accuracy else 0
        return total / len(x), correct / len(x) if has_accuracy else None

    def _measure_tree(self, x: Tree, y: Tree) -> tuple[float, float | None]:
        """Return mean loss and accuracy by the user's functions, or the usual accuracy for classes."""
        samples, chunk, params = size(x), self._samples_at_once(x), self.model.params
        total, right, accuracy = 0.0, 0.0, self.accuracy or self._usual_accuracy
        for begin in range(0, samples, chunk):
            part = slice(begin, begin + chunk)
            inputs = converted(rows(x, part), params.device, params.dtype)
            labels = inputs if y is x else converted(rows(y, part), params.device, params.dtype)
            outputs, count = call(self.model.module, inputs), size(inputs)
            total += float(self.loss(outputs, labels)) * count
            right += float(accuracy(outputs, labels)) * count
        return total / samples, None if math.isnan(right) else right / samples

    def _usual_accuracy(self, outputs: Any, labels: Tree) -> float:
        """Return the share of samples with the largest output at their class; NaN if there are no classes."""
        classes = self.data.classes
        known = classes is not None and isinstance(outputs, Tensor) and outputs.ndim == 2
        if not known or outputs.shape[1] < (classes or 0):
            return math.nan
        return float((outputs.argmax(dim=1) == labels).double().mean())

    def _converted(self, values: Tensor) -> Tensor:
        """Return values on the model's device and, for real numbers, in its dtype."""
        params = self.model.params
        return values.to(params.device, params.dtype if values.is_floating_point() else None)

    def _layout(self, x: Tensor) -> torch.memory_format:
        """Return channels last, which is faster, for convolutions unless the module fails with it."""
        module = self.model.module
        if x.ndim == 4 and any(isinstance(part, nn.Conv2d) for part in module.modules()):
            with suppress(RuntimeError):
                module(self._converted(x[:2]).contiguous(memory_format=torch.channels_last))
                return torch.channels_last
        return torch.contiguous_format

    def _samples_at_once(self, x: Tree) -> int:
        """Return how many samples to evaluate at once, so that no layer's output exceeds `_LAYER_BYTES`."""
        largest = x[0].numel() if isinstance(x, Tensor) else 1

        def measure(module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            nonlocal largest
            if isinstance(output, Tensor):
                largest = max(largest, output.numel() // 2)

        handles = [part.register_forward_hook(measure) for part in self.model.module.modules()]
        try:
            # Two samples: some modules treat a single one as an unbatched input.
            if isinstance(x, Tensor):
                self.model.module(self._converted(x[:2] if len(x) > 1 else x[:1]))
            else:
                call(self.model.module, mapped(self._converted, rows(x, slice(2))))
        finally:
            for handle in handles:
                handle.remove()
        return min(_MOST, max(1, _LAYER_BYTES // (largest * self.model.params.element_size())))


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to eval mode, and restore the mode of each part at the end."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:  # not the whole module: a part may be in eval mode on purpose
            part.training = True


def default_loss(data: Federated) -> Loss:
    """Return cross-entropy for class labels, mean squared error for real numbers, else the model's own."""
    if data.train_y is data.train_x:
        return returned_loss
    if data.train_y.is_floating_point():
        return nn.functional.mse_loss
    return nn.functional.cross_entropy
