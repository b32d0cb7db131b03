"""Network and loss, checked against the data before any work starts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flexfl.data.federated import Federated
from flexfl.errors import Fault, InputError
from flexfl.evaluate import default_loss
from flexfl.models.build import Loss, check_model
from flexfl.models.flat import FlatModel


def prepare(
    module: nn.Module,
    data: Federated,
    *,
    loss: Loss | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    augment: str = "none",
) -> tuple[FlatModel, Loss]:
    """Return the network as a flat vector on its device, and the loss.

    Args:
        module: the network.
        data: what it will be trained on.
        loss: of outputs and labels; by default cross-entropy for classes, else the squared error.
        dtype: of parameters and samples.
        device: by torch's name.
        augment: how samples are varied: none or crop-flip.

    Raises:
        InputError: lists all that keeps them from working together.
    """
    faults = _check_device(device, dtype)
    sample, labels = (
        t[:2].to(dtype) if t.is_floating_point() else t[:2] for t in (data.train_x, data.train_y)
    )
    chosen = loss or default_loss(data)
    least = 0 if data.classes is None else int(data.train_y.min())
    if loss is None and _one_hot(data.train_y):
        remedy = "give y.argmax(1); or a loss for labels like these"
        rule = "must be class numbers, they look one-hot"
        faults.append(Fault("data (labels)", rule, tuple(data.train_y.shape), remedy))
    else:
        faults += check_model(
            module.to(dtype), sample, labels, data.classes, chosen, plain_loss=loss is None, least=least
        )
    if augment == "crop-flip" and data.train_x.ndim != 4:
        rule = "crop-flip needs images of shape (channels, height, width)"
        faults.append(Fault("data.augment", rule, tuple(data.train_x.shape[1:]), 'use "none"'))
    if faults:
        raise InputError(faults, "the model and the data")
    return FlatModel(module.to(device), dtype), chosen


def _one_hot(labels: Tensor) -> bool:
    """Return whether each row of labels has one 1 and else 0."""
    if labels.ndim != 2 or labels.shape[1] < 2:
        return False
    return bool((((labels == 0) | (labels == 1)).all(dim=1) & (labels.sum(dim=1) == 1)).all())


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
