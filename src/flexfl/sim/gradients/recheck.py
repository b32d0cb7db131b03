"""A check, now and then during a run, that the path still gives each client its own gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from flexfl.arrays import IntArray
from flexfl.errors import FlexFLError
from flexfl.models.build import Loss
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.general import Looped, Vmapped
from flexfl.sim.gradients.one_pass import OnePass
from flexfl.sim.gradients.pieces import Pieces
from flexfl.sim.gradients.trial import Trial, differing
from flexfl.streams import Streams
from flexfl.trees import Tree, copies, rows

if TYPE_CHECKING:
    from flexfl.sim.gradients import Path

log = logging.getLogger("flexfl")

RECHECK, RECHECK_RATE = "gradients/recheck", 1 / 64
"""The stream that decides in which iterations one client is checked, and the share of these."""

_IN_FLOAT64, _IN_LESS = 1e-6, 1e-3
"""The relative differences that rounding may cause, in float64 and in shorter types."""


class MixedGradientsError(FlexFLError):
    """A path gave a client another gradient than its own minibatch does."""

    def __init__(self, path: str, client: int, iteration: int, parameter: str) -> None:
        self.path, self.client, self.iteration, self.parameter = path, client, iteration, parameter
        super().__init__(
            f"the gradient of {parameter} for client {client} in iteration {iteration}, by {path}, is not "
            "that of the client's own minibatch: the model mixes the samples of clients; "
            'set engine.gradients = "loop" and start the run again'
        )


@dataclass(frozen=True)
class Probe:
    """One client of a chunk that is to be checked, with its inputs as they were before the pass.

    They are a copy, since a module may work on its inputs in place. `x` and `y` are the minibatches of
    the whole chunk.
    """

    client: int
    iteration: int
    position: int
    inputs: Tree
    x: Tree
    y: Tree


class Recheck:
    """Compare one client's gradient with that of its minibatch alone, in 1 of 64 iterations.

    In each iteration in which the stream `RECHECK` is below `RECHECK_RATE`, call `pick`; for each chunk
    of clients, call `probe` before the pass and
    `compare` after it. All three return at once if there is nothing to check, as always on the loop.
    The iterations and clients come from the run's streams, so a resumed run checks the same ones.

    Passes that draw random numbers (dropout in training mode) cannot be compared and are left out. In
    less than float64, gradients may differ by much where a rounding error moves an activation across
    the kink of a ReLU; a difference counts only if it is also there in float64.

    Args:
        path: what computes the gradients.
        model: the model of `path`.
        loss: the loss of `path`.
        streams: the run's random numbers.
    """

    def __init__(self, path: Path, model: FlatModel, loss: Loss, streams: Streams) -> None:
        self._path, self._model, self._loss, self._streams = path, model, loss, streams
        self._loop = None if isinstance(path, Looped) else Looped(model, loss)

    def pick(self, clients: IntArray, iteration: int) -> int | None:
        """Return which of the clients that compute is checked in this iteration; None on the loop."""
        if self._loop is None or not len(clients):
            return None
        return int(clients[self._streams.generator(f"{RECHECK}/client", iteration).integers(len(clients))])

    def probe(self, picked: int | None, clients: IntArray, x: Tree, y: Tree, iteration: int) -> Probe | None:
        """Keep what `compare` needs, if the client that was picked is in this chunk.

        Args:
            picked: what `pick` returned.
            clients: the clients of the chunk, (M,).
            x: their inputs (M, B, …).
            y: their labels (M, B, …).
            iteration: the current one.
        """
        if picked is None or picked not in clients:
            return None
        position = int(np.flatnonzero(clients == picked)[0])
        return Probe(picked, iteration, position, copies(rows(x, slice(position, position + 1))), x, y)

    def compare(self, probe: Probe | None, pieces: Pieces) -> None:
        """Compare the gradients of a chunk with the loop's, for the client of `probe`.

        Torch's generators and the module are left as they were.

        Raises:
            MixedGradientsError: if they are not the same.
        """
        if probe is None or self._loop is None:
            return
        one = slice(probe.position, probe.position + 1)
        found = {name: piece.dense(one) for name, piece in pieces.items()}
        params = self._model.params
        tolerance = _IN_FLOAT64 if params.dtype == torch.float64 else _IN_LESS
        with _generators_restored(params.device) as used, torch.enable_grad():
            expected = self._expected(probe, one)
            name = differing(found, expected, params, tolerance)
            if name is None or used():
                return
            if differing(self._expected(probe, one), expected, params, tolerance):
                return  # NaN, which the engine reports, or random numbers from another generator
            if params.dtype != torch.float64 and not self._differs_in_float64(probe):
                log.debug("gradients: client %d differs by rounding only", probe.client)
                return
        raise MixedGradientsError(self._path.name, probe.client, probe.iteration, name)

    def _expected(self, probe: Probe, one: slice) -> dict[str, Tensor]:
        """Return the gradients of the client's minibatch alone."""
        assert self._loop is not None
        pieces, _ = self._loop(copies(probe.inputs), rows(probe.y, one))
        return {name: piece.dense(slice(None)) for name, piece in pieces.items()}

    def _differs_in_float64(self, probe: Probe) -> bool:
        """Compare a path of the same kind on a copy of the module, for the whole chunk."""
        self._path.release()  # so that the copy is one of the user's module
        if not isinstance(self._path, OnePass | Vmapped):
            return True  # a path of someone else's, which cannot be copied
        trial = Trial(self._model, self._loss, probe.x, probe.y)
        return trial.why_not(type(self._path), _IN_FLOAT64) is not None


@contextmanager
def _generators_restored(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Restore torch's generators at the end; yield a function that returns whether they were used."""
    before = torch.get_rng_state(), _state_of(device)

    def used() -> bool:
        now = torch.get_rng_state(), _state_of(device)
        return not all(torch.equal(a, b) for a, b in zip(before, now, strict=True))

    try:
        yield used
    finally:
        torch.set_rng_state(before[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(before[1], device)
        elif device.type == "mps":
            torch.mps.set_rng_state(before[1])


def _state_of(device: torch.device) -> Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    if device.type == "mps":
        return torch.mps.get_rng_state()
    return torch.empty(0)
