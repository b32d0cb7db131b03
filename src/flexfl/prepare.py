"""Network and loss, checked against the data before any work starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from flexfl.data.federated import Federated
from flexfl.errors import Fault, InputError
from flexfl.evaluate import default_loss
from flexfl.models.build import Accuracy, Loss, check_model
from flexfl.models.flat import FlatModel
from flexfl.trees import Tree, converted, in_words, leaves, rows, size


def prepare(
    module: nn.Module,
    data: Federated,
    *,
    loss: Loss | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    augment: str = "none",
    accuracy: Accuracy | None = None,
) -> tuple[FlatModel, Loss]:
    """Return the network as a flat vector on its device, and the loss.

    Args:
        module: the network.
        data: what it will be trained on.
        loss: of outputs and labels; by default cross-entropy for classes, the squared error for numbers,
            and what the model returns as its loss for samples without labels.
        dtype: of parameters and samples.
        device: by torch's name.
        augment: how samples are varied: none or crop-flip.
        accuracy: of outputs and labels, the share that is right; the usual one for classes by default.

    Raises:
        InputError: lists all that keeps them from working together.
    """
    faults = _check_device(device, dtype)
    if missing := _missing_loss(data, loss):
        raise InputError([*faults, missing], "the model and the data")
    chosen = loss or default_loss(data)
    least = 0 if data.classes is None else int(data.train_y.min())
    usual = loss is None and data.train_y is not data.train_x
    module = module.to(dtype)
    if usual and _one_hot(data.train_y):
        remedy = "give y.argmax(1); or a loss for labels like these"
        rule = "must be class numbers, they look one-hot"
        fault = Fault("data (labels)", rule, tuple(data.train_y.shape), remedy)
        raise InputError([*faults, fault], "the model and the data")
    for where, x, y in _sets(data):
        sample, labels = _examples(x, y, dtype)
        found = check_model(
            module, sample, labels, data.classes, chosen, plain_loss=usual, least=least, accuracy=accuracy
        )
        faults += [replace(fault, field=fault.field + where) for fault in found]
        if found:
            break
    image = isinstance(data.train_x, Tensor) and data.train_x.ndim == 4
    if augment == "crop-flip" and not image:
        rule = "crop-flip needs images of shape (channels, height, width)"
        shape = tuple(data.train_x.shape[1:]) if isinstance(data.train_x, Tensor) else "a tree of tensors"
        faults.append(Fault("data.augment", rule, shape, 'use "none"'))
    if faults:
        raise InputError(faults, "the model and the data")
    return FlatModel(module.to(device), dtype), chosen


def _one_hot(labels: Tree) -> bool:
    """Return whether each row of labels has one 1 and else 0."""
    if not isinstance(labels, Tensor) or labels.ndim != 2 or labels.shape[1] < 2:
        return False
    return bool((((labels == 0) | (labels == 1)).all(dim=1) & (labels.sum(dim=1) == 1)).all())


def _missing_loss(data: Federated, loss: Loss | None) -> Fault | None:
    """Return a fault for labels of several parts without a loss: there is no usual one for these."""
    if loss is not None or data.train_y is data.train_x or isinstance(data.train_y, Tensor):
        return None
    rule = "is needed for labels of several parts"
    return Fault("loss", rule, in_words(data.train_y), "give loss=lambda outputs, labels: …")


def _sets(data: Federated) -> Iterator[tuple[str, Tree, Tree]]:
    """Yield the sets to try; the test set, too, where its indices may be out of range."""
    yield "", data.train_x, data.train_y
    if data.test_x is not None and not (data.plain and data.train_x.is_floating_point()):
        yield " (test data)", data.test_x, data.test_y


def _examples(x: Tree, y: Tree, dtype: torch.dtype) -> tuple[Tree, Tree]:
    """Return the samples that a model is tried with: two, and those with the extremes of whole numbers.

    An index that no embedding or loss knows is found before any work starts.
    """
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.is_floating_point():
        sample, labels = (t[:2].to(dtype) if t.is_floating_point() else t[:2] for t in (x, y))
        return sample, sample if y is x else labels
    chosen = set(range(min(2, size(x))))
    for _, tensor in leaves((x, y)):
        if not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.numel():
            by_sample = tensor.reshape(len(tensor), -1)
            chosen |= {int(by_sample.amax(1).argmax()), int(by_sample.amin(1).argmin())}
    sample, labels = (converted(rows(tree, sorted(chosen)), None, dtype) for tree in (x, y))
    return sample, sample if y is x else labels


def _check_device(name: str, dtype: torch.dtype) -> list[Fault]:
    """Return what is wrong with computing on that device, here."""
    device = torch.device(name)
    there = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }[device.type]
    if (device.index or 0) >= there:
        rule = f"must be a device that torch finds here ({there} of {device.type})"
        return [Fault("engine.device", rule, name, 'use "cpu"')]
    if device.type == "mps" and dtype == torch.float64:
        return [
            Fault("engine.dtype", "must be float32 on mps", "float64", 'use "float32", or device = "cpu"')
        ]
    return []
