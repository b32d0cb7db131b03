"""Network and loss, checked against the data before any work starts."""

from __future__ import annotations

import torch
from torch import nn

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
    faults += check_model(module.to(dtype), sample, labels, data.classes, chosen, plain_loss=loss is None)
    if augment == "crop-flip" and data.train_x.ndim != 4:
        rule = "crop-flip needs images of shape (channels, height, width)"
        faults.append(Fault("data.augment", rule, tuple(data.train_x.shape[1:]), 'use "none"'))
    if faults:
        raise InputError(faults, "the model and the data")
    return FlatModel(module.to(device), dtype), chosen


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
