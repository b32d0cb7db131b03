"""A trial of the paths on a copy of the module, in float64, against the loop over clients."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from flexfl.errors import Fault, InputError
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.general import Looped, Vmapped
from flexfl.sim.gradients.one_pass import OnePass
from flexfl.trees import Tree, call, converted, copies, rows

Gradients = dict[str, Tensor]
"""By name of the parameter, (M, …)."""

_TOLERANCE = 1e-9


class Trial:
    """Compare paths with the loop for some clients' minibatches; the user's module is not touched.

    Dropout is left out, since paths draw its numbers in different orders. A module that draws random
    numbers in another way is compared in evaluation mode.

    Args:
        model: whose module is copied, to the CPU: not every device has float64.
        loss: the mean loss of a minibatch.
        x: inputs (M, B, …) of at least two clients.
        y: labels (M, B, …).

    Attributes:
        model: the copy.

    Raises:
        InputError: if a buffer of the module changes in training.
    """

    def __init__(self, model: FlatModel, loss: Loss, x: Tree, y: Tree) -> None:
        self.model = FlatModel(copy.deepcopy(model.module).cpu(), torch.float64)
        self._loss = loss
        self._x, self._y = (converted(tree, "cpu", torch.float64) for tree in (x, y))
        for part in self.model.module.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
        before = {name: buffer.clone() for name, buffer in self.model.module.named_buffers()}
        with torch.no_grad():
            # The paths replace buffers while they call the module, and put them back after.
            call(self.model.module, copies(rows(self._x, 0)))
        self._expected = self._gradients(Looped(self.model, loss))
        self._refuse_changed(before)
        again = self._gradients(Looped(self.model, loss))
        if differing(again, self._expected, self.model.params, _TOLERANCE):
            self.model.module.eval()
            self._expected = self._gradients(Looped(self.model, loss))

    def why_not(self, kind: type[OnePass | Vmapped], tolerance: float = _TOLERANCE) -> str | None:
        """Say why this kind of path does not give the loop's gradients; None if it does."""
        path = kind(self.model, self._loss)
        try:
            name = differing(self._gradients(path), self._expected, self.model.params, tolerance)
        except Exception as error:  # whatever a user's module may raise when it is traced
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        finally:
            path.release()
        return None if name is None else f"its gradient of {name} differs from the loop's"

    def samples(self) -> tuple[Tree, Tree]:
        """Return x and y, on a copy: a module may work on its input in place."""
        return copies(self._x), self._y

    def _gradients(self, path: OnePass | Vmapped | Looped) -> Gradients:
        pieces, _ = path(*self.samples())
        return {name: piece.dense(slice(None)) for name, piece in pieces.items()}

    def _refuse_changed(self, before: dict[str, Tensor]) -> None:
        for name, buffer in self.model.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                rule = "may not change while a client trains: clients would share it unseen"
                remedy = "freeze it, or normalise without running statistics (nn.GroupNorm)"
                raise InputError([Fault(f"model.{name}", rule, "a buffer that changes", remedy)], "the model")


def differing(found: Gradients, expected: Gradients, params: Tensor, tolerance: float) -> str | None:
    """Return the first parameter whose gradients differ by more than rounding, or None.

    They are measured against the gradient of the parameter and, a little, against that of all
    parameters and the parameters themselves: a gradient that is zero but for rounding (a bias before
    a normalisation, a minibatch that is predicted perfectly) has no scale of its own.

    Args:
        found: the gradients to check.
        expected: the gradients that are right.
        params: x, (D,).
        tolerance: the relative difference that rounding may cause.
    """
    whole = torch.stack([wanted.norm() for wanted in expected.values()]).norm()
    floor = whole / 100 + params.norm() / 1000
    for name, wanted in expected.items():
        gap = (found[name].reshape(wanted.shape) - wanted).norm()
        if not gap <= tolerance * (wanted.norm() + floor):  # NaN differs, too
            return name
    return None
