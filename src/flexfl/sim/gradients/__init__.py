"""Gradients of all clients that compute, kept apart by client, by the fastest path that is right."""

from __future__ import annotations

import logging
from typing import Protocol

import torch
from torch import Tensor

from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.general import Looped, Loss, Vmapped
from flexfl.sim.gradients.one_pass import OnePass
from flexfl.sim.gradients.pieces import Outer, Pieces

__all__ = ["Looped", "Loss", "OnePass", "Outer", "Path", "Pieces", "Vmapped", "choose"]

log = logging.getLogger("flexfl")


class Path(Protocol):
    """x (M, B, …) and y (M, B, …) → gradients by parameter, and the sum of M mean losses."""

    @property
    def name(self) -> str: ...
    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]: ...


def choose(model: FlatModel, loss: Loss, x: Tensor, y: Tensor) -> Path:
    """The first of one pass, vmap and loop that gives the gradients of the loop for x and y.

    The comparison is made without dropout, whose draws the paths take in a different order.
    """
    loop, one_pass = Looped(model, loss), OnePass(model, loss)
    paths: list[Path] = [one_pass] if one_pass.applies else []
    paths.append(Vmapped(model, loss))
    was_training = model.module.training
    model.module.eval()
    try:
        expected, _ = loop(x, y)
        for path in paths:
            reason = _differs(path, expected, x, y)
            if reason is None:
                log.info("gradients: %s", path.name)
                return path
            log.info("gradients: %s does not serve this model (%s)", path.name, reason)
            one_pass.release()
    finally:
        model.module.train(was_training)
    log.info("gradients: %s", loop.name)
    return loop


def _differs(path: Path, expected: Pieces, x: Tensor, y: Tensor) -> str | None:
    everyone = slice(None)
    try:
        found, _ = path(x, y)
        for name, piece in expected.items():
            wanted = piece.dense(everyone)
            gap = (found[name].dense(everyone).reshape(wanted.shape) - wanted).norm()
            tolerance = 1e-9 if wanted.dtype == torch.float64 else 1e-3
            if not gap <= tolerance * (wanted.norm() + 1e-6):
                return f"gradient of {name} differs"
    except Exception as error:  # whatever a user's module may raise when it is traced
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None
