"""Loss and accuracy over a whole dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from flexfl.arrays import FloatArray
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
    """Evaluates a model on the training and test set of federated data.

    Attributes:
        weights: w of each client, (N,); by default all count the same.
        accuracy: the user's function for the share of samples that are right.
    """

    model: FlatModel
    loss: Loss
    data: Federated
    weights: FloatArray | None = None
    accuracy: Accuracy | None = None

    def __call__(self) -> dict[str, float | None]:
        """Evaluate the model.

        Losses and accuracies that the user gives are means over some thousand samples at a time, weighted
        by their number: the mean over all samples if they are means over samples.

        Returns:
            train_loss, which is f = Σ w·F of (1); sample_loss, the mean over training samples;
            train_accuracy, test_loss and test_accuracy. None for what is not applicable.
        """
        data = self.data
        found: dict[str, float | None] = {"test_loss": None, "test_accuracy": None}
        with _evaluating(self.model.module), torch.no_grad():
            if self._samples_count_the_same:
                mean, accuracy = self._measure(data.train_x, data.train_y)
                found |= {"train_loss": mean, "sample_loss": mean, "train_accuracy": accuracy}
            else:
                found |= self._by_client()
            if data.test_x is not None and data.test_y is not None:
                found["test_loss"], found["test_accuracy"] = self._measure(data.test_x, data.test_y)
        return found

    def average(self, params: NDArray[Any]) -> dict[str, float | None]:
        """Evaluate the averaged model x̄, (D,), on the test set; the model itself is as before afterwards.

        Returns:
            average_test_loss and average_test_accuracy; None for what is not applicable.
        """
        data, loss, accuracy = self.data, None, None
        if data.test_x is not None and data.test_y is not None:
            with self.model.holding(params), _evaluating(self.model.module), torch.no_grad():
                loss, accuracy = self._measure(data.test_x, data.test_y)
        return {"average_test_loss": loss, "average_test_accuracy": accuracy}

    @property
    def _weights(self) -> FloatArray:
        clients = self.data.clients
        return np.full(clients, 1.0 / clients) if self.weights is None else self.weights

    @cached_property
    def _samples_count_the_same(self) -> bool:
        """Return whether f is the mean over all samples: w_n ∝ |D_n|, each sample held by one client."""
        sizes = self.data.sizes
        once = sizes.sum() == size(self.data.train_x) == len(np.unique(np.concatenate(self.data.parts)))
        return bool(once and np.allclose(self._weights * sizes.sum(), sizes, rtol=1e-12, atol=0.0))

    def _by_client(self) -> dict[str, float | None]:
        """Return f = Σ w·F, and loss and accuracy over the clients' samples.

        F_n is the mean loss over the samples of client n. A pass may hold samples of several clients; the
        loss, a mean over what it is given, is asked about each client's on their own.
        """
        x, y, sizes = self.data.train_x, self.data.train_y, self.data.sizes
        if not self.data.plain or self.accuracy is not None:
            return self._by_client_tree(x, y)
        order, ends = torch.from_numpy(np.concatenate(self.data.parts)), np.cumsum(sizes)
        sums, correct, has_accuracy = np.zeros(len(sizes)), 0, self.data.classes is not None
        for begin, labels, outputs in self._outputs(x, y, order):
            if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(labels):
                return self._by_client_tree(x, y)  # outputs that only the loss can take apart
            places = np.arange(begin, begin + len(labels))
            clients = np.searchsorted(ends, places, side="right")
            starts = np.flatnonzero(np.diff(clients, prepend=-1)).tolist()
            for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
                loss = float(self.loss(outputs[start:end], labels[start:end]))
                sums[clients[start]] += loss * (end - start)
            hits = self._hits(outputs, labels)
            has_accuracy = hits is not None
            correct += hits or 0
        return {
            "train_loss": float(self._weights @ (sums / sizes)),
            "sample_loss": float(sums.sum() / sizes.sum()),
            "train_accuracy": correct / len(order) if has_accuracy else None,
        }

    def _by_client_tree(self, x: Tree, y: Tree) -> dict[str, float | None]:
        """Return the same for samples that are trees, or with an accuracy of the user's."""
        sizes, losses, right = self.data.sizes, [], []
        for part in map(torch.from_numpy, self.data.parts):
            mine = rows(x, part)
            loss, accuracy = self._measure_tree(mine, mine if y is x else rows(y, part))
            losses.append(loss)
            right.append(math.nan if accuracy is None else accuracy)
        share = float(sizes @ right / sizes.sum())
        return {
            "train_loss": float(self._weights @ losses),
            "sample_loss": float(sizes @ losses / sizes.sum()),
            "train_accuracy": None if math.isnan(share) else share,
        }

    def _outputs(self, x: Tensor, y: Tensor, order: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield labels and outputs of the samples in that order, some at a time, from which place on."""
        layout, chunk = self._layout(x), self._samples_at_once(x)
        steps = steps_of(self.model.module) if layout is torch.channels_last else [self.model.module]
        for begin in range(0, len(order), chunk):
            rows = order[begin : begin + chunk]
            inputs = self._converted(x[rows]).contiguous(memory_format=layout)
            yield begin, self._converted(y[rows]), through(steps, inputs)

    def _hits(self, outputs: Tensor, labels: Tensor) -> int | None:
        """Return how many labels are right; None if only the loss can interpret the outputs."""
        classes = self.data.classes
        if classes is None or outputs.ndim != 2 or outputs.shape[1] < classes:
            return None
        return int((outputs.argmax(dim=1) == labels).sum())

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
        applicable = classes is not None and isinstance(outputs, Tensor) and outputs.ndim == 2
        if not applicable or outputs.shape[1] < (classes or 0):
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
