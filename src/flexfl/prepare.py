"""A spec's network and loss, checked against the data before any work starts."""

from __future__ import annotations

import torch
from torch import nn

from flexfl.data.federated import Federated
from flexfl.errors import Fault, InputError
from flexfl.evaluate import default_loss
from flexfl.models.build import Loss, build_model, check_model
from flexfl.models.flat import FlatModel
from flexfl.spec.schema import Spec
from flexfl.streams import Streams


def prepare(
    spec: Spec, data: Federated, *, model: nn.Module | None = None, loss: Loss | None = None
) -> tuple[FlatModel, Loss]:
    """The network as a flat vector on its device, and the loss; `model` and `loss` instead of the spec's."""
    module = build_model(spec.model, Streams(spec.train.seed)) if model is None else model
    dtype = getattr(torch, spec.engine.dtype)
    faults = _check_device(spec.engine.device, dtype)
    sample, labels = (
        t[:2].to(dtype) if t.is_floating_point() else t[:2] for t in (data.train_x, data.train_y)
    )
    chosen = loss or default_loss(data)
    faults += check_model(module.to(dtype), sample, labels, data.classes, chosen, plain_loss=loss is None)
    if spec.data.augment == "crop-flip" and data.train_x.ndim != 4:
        rule = "crop-flip needs images of shape (channels, height, width)"
        faults.append(Fault("data.augment", rule, tuple(data.train_x.shape[1:]), 'use "none"'))
    if faults:
        raise InputError(faults, "the model and the data")
    return FlatModel(module.to(spec.engine.device), dtype), chosen


def _check_device(name: str, dtype: torch.dtype) -> list[Fault]:
    """What is wrong with computing on that device, here."""
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
