"""Gradients of clients that are at different parameters, as after their first local step."""

from __future__ import annotations

import logging
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from flexfl.errors import Fault, InputError
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.general import General
from flexfl.sim.gradients.trial import Trial, differing
from flexfl.trees import Tree, rows

log = logging.getLogger("flexfl")

_TOLERANCE = 1e-9


class Each(Protocol):
    """y (M, D), inputs (M, B, …) and labels (M, B, …) → gradients (M, D), and the sum of M mean losses."""

    @property
    def name(self) -> str: ...
    def __call__(self, params: Tensor, x: Tree, y: Tree) -> tuple[Tensor, float]: ...


class VmappedEach(General):
    """All clients at once, for modules that vmap can trace with weights of each client."""

    name = "vmap"

    def __call__(self, params: Tensor, x: Tree, y: Tree) -> tuple[Tensor, float]:
        by_client = vmap(grad_and_value(self._client_loss), in_dims=(0, 0, 0), randomness="different")
        grads, losses = by_client(self._views(params), x, y)
        flat = [grads[name].reshape(len(params), -1) for name in self._model.names]
        return torch.cat(flat, dim=1), float(losses.sum())

    def _views(self, params: Tensor) -> dict[str, Tensor]:
        model = self._model
        return {
            name: params[:, place].reshape(len(params), *shape)
            for name, place, shape in zip(model.names, model.slices, model.shapes, strict=True)
        }


class LoopedEach(General):
    """One client after another, by plain autograd: slow for small models, and right for every module."""

    name = "loop"

    def __call__(self, params: Tensor, x: Tree, y: Tree) -> tuple[Tensor, float]:
        model, found, total = self._model, torch.empty_like(params), 0.0
        for n, (own, grads) in enumerate(zip(params, found, strict=True)):
            with torch.enable_grad():
                leaves = {
                    name: own[place].view(shape).detach().requires_grad_()
                    for name, place, shape in zip(model.names, model.slices, model.shapes, strict=True)
                }
                loss = self._client_loss(leaves, rows(x, n), rows(y, n))
                each = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            total += float(loss.detach())
            for place, g in zip(model.slices, each, strict=True):
                grads[place] = 0.0 if g is None else g.reshape(-1)
        return found, total


def choose_each(model: FlatModel, loss: Loss, x: Tree, y: Tree, wanted: str = "auto") -> Each:
    """Return the fastest path that gives each client its gradient at its own parameters.

    Vmap must give the loop's gradients, on a copy of the module, in float64. By itself this takes the loop
    for convolutions on a CPU: with weights of each client they are slower by vmap (by 1.4 for the paper's).

    Args:
        model: the model to train, which no other path holds.
        loss: the mean loss of a minibatch.
        x: inputs (M, B, …) of two clients.
        y: their labels (M, B, …).
        wanted: the value of engine.gradients; "one-pass" is for clients that are all at x.

    Raises:
        InputError: "vmap" is wanted and does not serve this model.
    """
    slower = wanted != "vmap" and model.params.device.type == "cpu" and _convolves(model)
    if wanted != "loop" and not slower:
        reason = why_not_vmap(model, loss, x, y)
        if reason is None:
            log.info("gradients of local steps: %s", VmappedEach.name)
            return VmappedEach(model, loss)
        log.info("gradients of local steps: vmap does not serve this model (%s)", reason)
        if wanted == "vmap":
            rule = f"must be a path that serves the local steps of this model ({reason})"
            raise InputError([Fault("engine.gradients", rule, wanted, "set it to 'auto' or 'loop'")])
    log.info("gradients of local steps: %s", LoopedEach.name)
    return LoopedEach(model, loss)


def _convolves(model: FlatModel) -> bool:
    return any(isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) for part in model.module.modules())


def why_not_vmap(model: FlatModel, loss: Loss, x: Tree, y: Tree) -> str | None:
    """Say why vmap does not give the loop's gradients at different parameters; None if it does."""
    trial = Trial(model, loss, x, y)
    own = trial.model
    steps = torch.linspace(0.0, 1e-2, 2, dtype=torch.float64)[:, None]
    params = own.params + steps * torch.cos(torch.arange(own.dim, dtype=torch.float64))
    try:
        found, expected = (kind(own, loss)(params, *trial.samples())[0] for kind in (VmappedEach, LoopedEach))
    except Exception as error:  # whatever a user's module may raise when it is traced
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    places = dict(zip(own.names, own.slices, strict=True))
    mine, theirs = ({name: grads[:, place] for name, place in places.items()} for grads in (found, expected))
    name = differing(mine, theirs, own.params, _TOLERANCE)
    return None if name is None else f"its gradient of {name} differs from the loop's"
