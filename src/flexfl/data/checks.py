"""What is wrong with samples and labels, found before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flexfl.arrays import IntArray
from flexfl.errors import Fault, InputError
from flexfl.trees import Tree, leaves


def label_faults(labels: Tensor, what: str) -> list[Fault]:
    """Return the fault of labels that are neither classes from 0 on nor finite numbers."""
    field = f"data ({what})"
    if labels.is_floating_point():
        sound = torch.isfinite(labels.reshape(len(labels), -1)).all(dim=1)
        if not sound.all():
            place = int((~sound).nonzero()[0])
            found = f"{labels[place].tolist()} in sample {place}"
            return [Fault(field, "must be finite", found, "leave such samples out")]
    elif labels.ndim == 1 and (least := int(labels.min())) < 0:
        remedy = "renumber the classes from 0, or leave samples without a label out"
        return [Fault(field, "must be classes from 0 on", least, remedy)]
    return []


def other_labels(test: Tensor, train: Tensor) -> list[Fault]:
    """Return the fault of test labels that are of another kind than those for training."""
    if test.is_floating_point() != train.is_floating_point():
        kind = "numbers" if train.is_floating_point() else "whole numbers (classes)"
        remedy = "convert them: y.float()" if train.is_floating_point() else "convert them: y.long()"
        rule = f"must be {kind}, as in training ({train.dtype})"
        return [Fault("data (test labels)", rule, str(test.dtype), remedy)]
    if test.shape[1:] != train.shape[1:]:
        rule = f"must have the shape {tuple(train.shape[1:])} for each sample, as in training"
        return [Fault("data (test labels)", rule, tuple(test.shape[1:]), "reshape them")]
    return []


def shown(found: dict[str, tuple[int, ...]]) -> Any:
    """Return the shape of one tensor, or those of all by name."""
    return found[""] if found.keys() == {""} else found


def finite(tensor: Tensor) -> Tensor:
    """Return which samples are finite, (S,)."""
    if not tensor.is_floating_point():
        return torch.ones(len(tensor), dtype=torch.bool)
    return torch.isfinite(tensor.reshape(len(tensor), -1)).all(dim=1)


def non_finite(x: Tree, parts: Sequence[IntArray]) -> list[Fault]:
    """Return a fault for each client with a sample that is not finite."""
    sound = torch.stack([finite(tensor) for _, tensor in leaves(x)]).all(dim=0).numpy()
    return [
        Fault(f"data of client {n}", "must be finite", f"sample {part[~sound[part]][0]}", "clean it")
        for n, part in enumerate(parts)
        if not sound[part].all()
    ]


def as_tensor(given: Any, what: str, part: str) -> Tensor:
    """Return features or labels as a tensor; or raise in words what keeps them from being one."""
    try:
        return torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition(". ")[0]
        remedy = "convert them to an array of numbers, one row for each sample"
        if part == "labels":
            remedy = "number the classes: numpy.unique(y, return_inverse=True)[1]"
        rule = f"must have {part} that are numbers ({reason})"
        raise InputError([Fault(f"data ({what})", rule, type(given).__name__, remedy)]) from error
