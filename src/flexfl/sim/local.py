"""Local work of many clients at once: parameters (M, D), a row for each client that computes.

The first gradients of all clients are at x, so they come from the one pass of the paper's local work. After
that each client is somewhere else, and `gradients.each` takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from flexfl.arrays import IntArray
from flexfl.errors import FlexFLError
from flexfl.local import first_memory
from flexfl.mapped import leave_memory
from flexfl.models.flat import own_generator, seed_generator
from flexfl.sim.gradients.chunks import VMAP_BYTES
from flexfl.sim.gradients.each import Each, VmappedEach, choose_each
from flexfl.sim.gradients.pieces import Dense, Pieces
from flexfl.sim.problem import Problem
from flexfl.state import State
from flexfl.trees import Tree

Zeros = Callable[[tuple[int, ...]], NDArray[Any]]
"""Makes an array of zeros of that shape."""

_BYTES = 16 * 2**20
"""Of one array (M, D), of which local work has several."""


class LocalSteps:
    """Compute the changes Δ of some clients, and keep what clients remember, (N, …) by name.

    Args:
        problem: what is trained, and by what work.
        example: inputs and labels of two clients, (2, B, …).
        wanted: the value of engine.gradients.
        zeros: makes what clients remember, in the model's type; by default in its memory.
    """

    def __init__(
        self, problem: Problem, example: tuple[Tree, Tree], wanted: str = "auto", zeros: Zeros | None = None
    ) -> None:
        self._problem, self._example, self._wanted = problem, example, wanted
        self.local, self._model, clients = problem.setup.local, problem.model, problem.data.clients
        self._memory: dict[str, Tensor] = {}
        self._files: list[NDArray[Any]] = []
        for name, first in first_memory(self.local, self._model.params[None]).items():
            shape = clients, *first.shape[1:]
            if zeros is not None:
                self._files.append(zeros(shape))
            self._memory[name] = (
                first.new_zeros(shape) if zeros is None else torch.from_numpy(self._files[-1])
            )
            if bool((first != 0).any()):
                self._memory[name][:] = first
        self.at_once = self._clients_at_once()

    @cached_property
    def each(self) -> Each:
        """The path for clients that are at different parameters; chosen when it is needed."""
        with own_generator():
            seed_generator(0, self._model.params.device)
            return choose_each(self._model, self._problem.loss, *self._example, self._wanted)

    def _clients_at_once(self) -> int:
        """Return how many clients' arrays stay within bounds; fixed, for the sake of resuming."""
        size = self._model.params.element_size()
        most = _BYTES // (size * self._model.dim)
        if self.local.gradients > 1 and isinstance(self.each, VmappedEach):
            numbers = self.each.saved_per_sample(*self._example) * self._problem.batch_size
            most = min(most, VMAP_BYTES // max(1, size * numbers))
        return max(1, most)

    def change(
        self,
        clients: IntArray,
        eta: float,
        minibatch: Callable[[int], tuple[Tree, Tree]],
        at_x: Callable[[Tree, Tree], tuple[Pieces, float]],
    ) -> tuple[Pieces, float]:
        """Return Δ by parameter, for M clients, and the sum of their mean losses over the local steps.

        Args:
            clients: these clients, (M,).
            eta: η.
            minibatch: their inputs and labels in local step k, (M, B, …).
            at_x: gradients at x, and the sum of their losses.
        """
        model, losses = self._model, list[float]()
        x = model.params.expand(len(clients), -1)

        def gradient(y: Tensor, k: int) -> Tensor:
            inputs, labels = minibatch(k)
            if y is x:
                pieces, loss = at_x(inputs, labels)
                found = [pieces[name].dense(slice(None)).reshape(len(x), -1) for name in model.names]
                grads = torch.cat(found, dim=1)
            else:
                grads, loss = self.each(y, inputs, labels)
            losses.append(loss)
            return grads

        who = torch.from_numpy(clients).to(x.device)
        known = {name: kept[who] for name, kept in self._memory.items()}
        delta, known = self.local.change(gradient, x, eta, known)
        if not isinstance(delta, Tensor) or delta.shape != x.shape:
            found = tuple(delta.shape) if isinstance(delta, Tensor) else type(delta).__name__
            raise FlexFLError(
                f"train.local must return a change of the shape of x, {tuple(x.shape)}, got {found}; "
                "write it with operators, which are NumPy's and torch's alike (flexfl.LocalWork)"
            )
        for name, kept in self._memory.items():
            kept[who] = known[name]
        self._leave_memory()
        places = zip(model.names, model.slices, strict=True)
        mean_loss = sum(losses) / len(losses) if losses else math.nan
        return {name: Dense(delta[:, place]) for name, place in places}, mean_loss

    # Memory ------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return what clients remember, by name, (N, …)."""
        return {f"local.{name}": kept.cpu().numpy() for name, kept in self._memory.items()}

    def restore(self, state: Mapping[str, NDArray[Any]], rows: Iterable[slice]) -> None:
        """Continue from such a state, some rows at a time."""
        for part in rows:
            for name, kept in self._memory.items():
                stored = state[f"local.{name}"]
                kept[part] = torch.tensor(stored[part]).to(kept.device)
                leave_memory(stored)
            self._leave_memory()

    def _leave_memory(self) -> None:
        for file in self._files:
            leave_memory(file)
