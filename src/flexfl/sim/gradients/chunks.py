"""How many clients a pass may take at once, so that memory stays bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from flexfl.sim.gradients.general import Vmapped
from flexfl.sim.gradients.one_pass import OnePass
from flexfl.trees import Tree

if TYPE_CHECKING:
    from flexfl.sim.gradients import Path

GRADIENT_BYTES, VMAP_BYTES = 64 * 2**20, 256 * 2**20
"""Of the gradients of all clients of a pass, and of what vmap keeps to take them."""
_ACTIVATION_BYTES = 32 * 2**20


def clients_at_once(path: Path, params: Tensor, batch_size: int, x: Tree, y: Tree) -> int:
    """Return so many that gradients and activations stay within bounds; fixed, for the sake of resuming.

    Args:
        path: what computes the gradients.
        params: of the model, (D,).
        batch_size: B, of the largest minibatch.
        x: inputs (M, B, …) of some clients, of which B may be smaller.
        y: their labels (M, B, …).
    """
    most = GRADIENT_BYTES // (params.element_size() * len(params))
    if isinstance(path, OnePass):
        path(x[:1], y[:1])
        path.release()  # what is held before the first step may never be given back
        numbers = path.activation_numbers * batch_size // x.shape[1]
        most = min(most, _ACTIVATION_BYTES // max(1, params.element_size() * numbers))
    elif isinstance(path, Vmapped):  # of a frozen network with few trained weights, most of all
        numbers = path.saved_per_sample(x, y) * batch_size
        most = min(most, VMAP_BYTES // max(1, params.element_size() * numbers))
    return max(1, most)
