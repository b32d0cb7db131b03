"""Gradients of all clients that compute, kept apart by client, by the fastest path that is right."""

from __future__ import annotations

import logging
from typing import Protocol

from torch import Tensor

from flexfl.errors import Fault, InputError
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.apart import loss_may_draw, why_not_apart
from flexfl.sim.gradients.chunks import clients_at_once
from flexfl.sim.gradients.general import Looped, Vmapped
from flexfl.sim.gradients.one_pass import Chain, OnePass
from flexfl.sim.gradients.pieces import Outer, OverSamples, Pieces
from flexfl.sim.gradients.recheck import MixedGradientsError, Probe, Recheck
from flexfl.sim.gradients.trial import Trial
from flexfl.trees import Tree

__all__ = [
    "Chain",
    "Looped",
    "Loss",
    "MixedGradientsError",
    "OnePass",
    "Outer",
    "OverSamples",
    "Path",
    "Pieces",
    "Probe",
    "Recheck",
    "Vmapped",
    "choose",
    "clients_at_once",
]

log = logging.getLogger("flexfl")

_KINDS: dict[str, list[type[OnePass | Vmapped]]] = {
    "auto": [Chain, OnePass, Vmapped],
    "one-pass": [Chain, OnePass],
    "vmap": [Vmapped],
    "loop": [],
}
"""What is tried before the loop, by the value of engine.gradients."""


class Path(Protocol):
    """x (M, B, …) and y (M, B, …) → gradients by parameter, and the sum of M mean losses.

    `draws` is False if a pass never draws random numbers from torch's generator.
    `activation_numbers` is how many numbers the last pass kept as activations, 0 if unknown.
    `release` leaves the module as it was found; the next call takes hold of it again.
    """

    @property
    def name(self) -> str: ...
    @property
    def draws(self) -> bool: ...
    @property
    def activation_numbers(self) -> int: ...
    def __call__(self, x: Tree, y: Tree) -> tuple[Pieces, float]: ...
    def release(self) -> None: ...


def choose(model: FlatModel, loss: Loss, x: Tree, y: Tree, wanted: str = "auto") -> Path:
    """Return the fastest path that gives each client the gradient of its own minibatch.

    By itself this takes the one pass only for modules that are known to keep samples apart (see
    `apart`), vmap for others and the loop for those that vmap cannot trace. What is not known must give
    the loop's gradients for x and y, on a copy of the module, in float64, in the mode it trains in.
    `wanted = "one-pass"` also takes a module that is not known to keep samples apart, on such a trial.

    Args:
        model: the model to train.
        loss: the mean loss of a minibatch.
        x: inputs (M, B, …) of at least two clients: a tensor, or a tree of them.
        y: their labels (M, B, …), likewise.
        wanted: "auto", or the path to take: "one-pass", "vmap" or "loop".

    Returns:
        The path, for `model`.

    Raises:
        InputError: if the path that is wanted does not serve this model, or a buffer of the model
            changes in training.
    """
    if wanted not in _KINDS:
        rule, remedy = f"must be one of {', '.join(map(repr, _KINDS))}", "leave it out for 'auto'"
        raise InputError([Fault("engine.gradients", rule, wanted, remedy)])
    plain = isinstance(x, Tensor) and isinstance(y, Tensor) and x is not y
    is_tree = None if plain else "samples are not one tensor of features and one of labels"
    mixing = is_tree or why_not_apart(model.module, x.ndim - 2)
    known = mixing is None and not loss_may_draw(loss)  # nor is anything else known of an own loss
    trial = None
    reason = None
    for kind in _KINDS[wanted]:
        path = kind(model, loss)
        reason = is_tree or path.why_not() if isinstance(path, OnePass) else None
        if wanted == "auto" and isinstance(path, OnePass):
            reason = mixing or reason
        if reason is None and not (isinstance(path, OnePass) and known):
            trial = trial or Trial(model, loss, x, y)
            reason = trial.why_not(kind)
        if reason is None:
            log.info("gradients: %s", path.name)
            if isinstance(path, OnePass) and mixing is not None:
                log.warning("gradients: one pass, as engine.gradients asks, although %s", mixing)
            return path
        log.info("gradients: %s does not serve this model (%s)", path.name, reason)
    if wanted in ("one-pass", "vmap"):
        rule = f"must be a path that serves this model ({reason})"
        raise InputError([Fault("engine.gradients", rule, wanted, "set it to 'auto' or 'loop'")])
    if trial is None and any(True for _ in model.module.buffers()):
        Trial(model, loss, x, y)  # refuses a buffer that changes in training
    log.info("gradients: %s", Looped.name)
    return Looped(model, loss)
