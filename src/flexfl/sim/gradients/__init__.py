"""Gradients of all clients that compute, kept apart by client, by the fastest path that is right."""

from __future__ import annotations

import copy
import logging
from typing import Protocol

import torch
from torch import Tensor, nn

from flexfl.errors import Fault, InputError
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.chain import Chain
from flexfl.sim.gradients.general import Looped, Vmapped
from flexfl.sim.gradients.one_pass import OnePass
from flexfl.sim.gradients.pieces import Outer, OverSamples, Pieces

__all__ = [
    "Chain",
    "Looped",
    "Loss",
    "OnePass",
    "Outer",
    "OverSamples",
    "Path",
    "Pieces",
    "Vmapped",
    "choose",
]

log = logging.getLogger("flexfl")


class Path(Protocol):
    """x (M, B, …) and y (M, B, …) → gradients by parameter, and the sum of M mean losses."""

    @property
    def name(self) -> str: ...
    def __call__(self, x: Tensor, y: Tensor) -> tuple[Pieces, float]: ...


def choose(model: FlatModel, loss: Loss, x: Tensor, y: Tensor) -> Path:
    """The first of one pass, vmap and loop that gives the gradients of the loop for x and y.

    They are compared on a copy of the module, in float64, in the mode it trains in.
    """
    trial = _Trial(model, loss, x, y)
    kinds: list[type[OnePass | Vmapped]] = [Chain, OnePass, Vmapped]
    for kind in kinds:
        path = kind(model, loss)
        if isinstance(path, OnePass) and not path.applies:
            continue
        reason = trial.differs(kind)
        if reason is None:
            log.info("gradients: %s", path.name)
            return path
        log.info("gradients: %s does not serve this model (%s)", path.name, reason)
    log.info("gradients: %s", Looped.name)
    return Looped(model, loss)


class _Trial:
    """A copy of the module on which paths are tried; the user's own is not touched."""

    def __init__(self, model: FlatModel, loss: Loss, x: Tensor, y: Tensor) -> None:
        # On the CPU: not every device has float64.
        self._model = FlatModel(copy.deepcopy(model.module).cpu(), torch.float64)
        self._loss = loss
        self._x, self._y = (t.double() if t.is_floating_point() else t for t in (x.cpu(), y.cpu()))
        for part in self._model.module.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
        before = {name: buffer.clone() for name, buffer in self._model.module.named_buffers()}
        with torch.no_grad():
            self._model.module(self._x[0])  # where parameters are replaced, so are buffers, and put back
        self._expected = self._gradients(Looped(self._model, loss))
        for name, buffer in self._model.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                rule = "may not change while a client trains: clients would share it unseen"
                remedy = "freeze it, or normalise without running statistics (nn.GroupNorm)"
                raise InputError([Fault(f"model.{name}", rule, "a buffer that changes", remedy)], "the model")
        if self._differ(self._gradients(Looped(self._model, loss))):
            # It draws random numbers of its own, and the paths draw them in another order.
            self._model.module.eval()
            self._expected = self._gradients(Looped(self._model, loss))

    def differs(self, kind: type[OnePass | Vmapped]) -> str | None:
        """Why this path does not serve, if so."""
        path = kind(self._model, self._loss)
        try:
            return self._differ(self._gradients(path))
        except Exception as error:  # whatever a user's module may raise when it is traced
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        finally:
            if isinstance(path, OnePass):
                path.release()

    def _gradients(self, path: Path) -> dict[str, Tensor]:
        pieces, _ = path(self._x, self._y)
        return {name: piece.dense(slice(None)) for name, piece in pieces.items()}

    def _differ(self, found: dict[str, Tensor]) -> str | None:
        for name, wanted in self._expected.items():
            gap = (found[name].reshape(wanted.shape) - wanted).norm()
            if not gap <= 1e-9 * (wanted.norm() + 1e-6):
                return f"gradient of {name} differs"
        return None
