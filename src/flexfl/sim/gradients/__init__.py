"""Gradients of all clients that compute, kept apart by client, by the fastest path that is right."""

from __future__ import annotations

import logging
from typing import Protocol

import torch
from torch import Tensor

from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.general import Gradients, Looped, Loss, Vmapped
from flexfl.sim.gradients.one_pass import OnePass

__all__ = ["Gradients", "Looped", "Loss", "OnePass", "Path", "Vmapped", "choose"]

log = logging.getLogger("flexfl")


class Path(Protocol):
    """x (M, B, …) and y (M, B, …) → gradients (M, …) by parameter, and losses (M,)."""

    name: str

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Gradients, Tensor]: ...


def choose(model: FlatModel, loss: Loss, x: Tensor, y: Tensor) -> Path:
    """The first of one pass, vmap and loop that gives the gradients of the loop for x and y.

    The comparison is made without dropout, whose draws the paths take in a different order.
    """
    loop = Looped(model, loss)
    one_pass = OnePass(model, loss)
    was_training = model.module.training
    model.module.eval()
    try:
        expected, _ = loop(x, y)
        for path in ([one_pass] if one_pass.applies else []) + [Vmapped(model, loss)]:
            reason = _differs(path, expected, x, y)
            if reason is None:
                log.info("gradients: %s", path.name)
                return path
            log.info("gradients: %s does not serve this model (%s)", path.name, reason)
    finally:
        model.module.train(was_training)
    log.info("gradients: %s", loop.name)
    return loop


def _differs(path: Path, expected: Gradients, x: Tensor, y: Tensor) -> str | None:
    try:
        found, _ = path(x, y)
    except Exception as error:  # whatever a user's module may raise when it is traced
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    tolerance = 1e-9 if next(iter(expected.values())).dtype == torch.float64 else 1e-3
    for name, gradient in expected.items():
        if (found[name].reshape(gradient.shape) - gradient).norm() > tolerance * (gradient.norm() + 1e-6):
            return f"gradient of {name} differs"
    return None
