"""One iteration after another: Algorithms 1 and 2 for all clients at once.

The steps are those of `algorithm.reference`, which the tests hold this engine against. What
differs is how: one pass through the network for everyone who computes, residuals updated in
place, selection by threshold in fused passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexfl.algorithm import client
from flexfl.arrays import FloatArray, IntArray, spread
from flexfl.control.policy import ComputeRule, Policy, SendRule
from flexfl.costs.base import Cost, CostModel
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.errors import CostError, NonFiniteError
from flexfl.mapped import leave_memory
from flexfl.models.flat import FlatModel
from flexfl.models.generator import own_generator, seed_generator
from flexfl.sim.gradients import Loss, OnePass, Outer, OverSamples, Pieces, choose
from flexfl.sim.selection import Residuals
from flexfl.streams import Streams
from flexfl.wire import message_bytes

_PIECE_BYTES = 16 * 2**20
_GRADIENT_BYTES = 64 * 2**20
_ACTIVATION_BYTES = 32 * 2**20

Lap = Callable[[str], None]
Augment = Callable[[Tensor, IntArray, int, Streams, int], Tensor]


@dataclass(frozen=True)
class Problem:
    """What is trained, by whom, and at what cost."""

    model: FlatModel
    loss: Loss
    data: Federated
    policy: Policy
    costs: Mapping[str, CostModel]
    weights: FloatArray
    learning_rate: float
    batch_size: int
    streams: Streams
    augment: Augment | None = None


class Engine:
    """Holds x, r and all e; `step` runs one iteration and tells what happened."""

    def __init__(
        self, problem: Problem, *, kernels: str | None = None, residuals: NDArray[Any] | None = None
    ) -> None:
        """kernels is "numba" or "torch"; by default numba for a model on the CPU.

        residuals is where e is kept, (N, D) zeros; by default an array in memory.
        """
        self._problem = problem
        self._streams = problem.streams
        self._batches = Minibatches(problem.data.parts, problem.batch_size, self._streams)
        self.clients, self.dim = problem.data.clients, problem.model.dim
        x = problem.model.params
        self._device = x.device
        self._train_x, self._train_y = (
            t.to(x.device, x.dtype if t.is_floating_point() else None)
            for t in (problem.data.train_x, problem.data.train_y)
        )
        self._by_numba = (kernels or ("numba" if x.device.type == "cpu" else "torch")) == "numba"
        self._x: Any
        self._r: Any
        self._e: Any
        if self._by_numba:
            self._x, self._r = x.numpy(), np.zeros(self.dim, dtype=_numpy_dtype(x))
            self._e = residuals
            if residuals is None:
                self._e = np.zeros((self.clients, self.dim), dtype=_numpy_dtype(x))
        else:
            self._x, self._r = x, torch.zeros_like(x)
            self._e = x.new_zeros((self.clients, self.dim))
        self._itemsize, self._values = x.element_size(), str(x.dtype).removeprefix("torch.")
        self._accumulated = Residuals(self._e, empty=True)
        self._aggregated = Residuals(self._r, empty=True)
        self.iteration = 0
        # Two clients, as many samples of each: enough to tell clients from a mixture.
        pair = np.array([0, self.clients - 1])
        drawn = [self._batches.peek(int(n), 0) for n in pair]
        fewest = min(map(len, drawn))
        example = self._minibatch(pair, np.stack([samples[:fewest] for samples in drawn]))
        with own_generator():  # a model may draw random numbers while it is tried
            seed_generator(0, self._device)
            self.gradients = choose(problem.model, problem.loss, *example)
            self._chunk = self._clients_at_once(*example)

    @np.errstate(invalid="ignore")  # what is not a number is found and told with its name
    def step(self, lap: Lap = lambda stage: None) -> dict[str, Any]:
        """Run one iteration; returns the record that `results.columns` describes.

        `lap` is told the name of each stage when it ends. Torch's own generator is seeded.
        """
        t, N, D = self.iteration, self.clients, self.dim
        policy, costs = self._problem.policy, self._problem.costs
        record: dict[str, Any] = {"iteration": t}

        moment = self._streams.moment("compute", t, D, (N,))
        cost = costs["compute"].at(moment)
        q = policy.compute.decide(cost, moment)  # P3.1
        record["compute_queue"] = _pressure(policy.compute, (N,))
        record["compute_cost"] = self._charge("compute", policy.compute, cost, q, (N,))
        computed = client.computes(q, moment.uniform("bernoulli"))  # line 5
        record["compute_spent"] = spread(cost(computed.astype(float)), (N,))
        step = client.step_size(self._problem.learning_rate, q, computed)
        record |= {"computed": computed, "compute_prob": q, "compute_objective": 1.0 / q}
        lap("who computes")

        moment = self._streams.moment("uplink", t, D, (N,))
        cost = costs["uplink"].at(moment)
        accumulated = self._accumulated
        accumulated.expect(policy.uplink.cut(cost))
        record["batch_loss"] = self._accumulate(computed.nonzero()[0], step, lap)  # line 6
        k = policy.uplink.decide(cost, accumulated, moment)  # P3.2
        self._refuse_non_finite("client {}", "the gradient", accumulated.energy)
        lap("what to send")
        record["uplink_queue"] = _pressure(policy.uplink, (N,))
        record["uplink_cost"] = self._charge("uplink", policy.uplink, cost, k, (N,))
        # Lines 7, 8 and 10: what leaves the clients enters r, which from here on holds a.
        record["uplink_objective"] = accumulated.send(k, self._problem.weights, self._r)
        record |= {"senders": int(np.count_nonzero(k)), "uplink_components": k}
        record["uplink_bytes"] = message_bytes(k, D, self._values)
        lap("sending")

        moment = self._streams.moment("downlink", t, D)
        cost = costs["downlink"].at(moment)
        aggregated = self._aggregated
        aggregated.changed()
        aggregated.expect(policy.downlink.cut(cost))
        k = policy.downlink.decide(cost, aggregated, moment)  # P3.3
        self._refuse_non_finite("the server", "the aggregated update", aggregated.energy)
        record["downlink_queue"] = float(_pressure(policy.downlink, ()))
        record["downlink_cost"] = float(self._charge("downlink", policy.downlink, cost, k, ()))
        record["downlink_objective"] = float(aggregated.send(k, 1.0, self._x))  # lines 11, 12 and 14
        record["downlink_components"] = int(k)
        record["downlink_bytes"] = int(message_bytes(k, D, self._values))
        self.iteration += 1
        lap("server")
        return record

    @property
    def params(self) -> NDArray[Any]:
        """x, (D,)."""
        return _on_host(self._x)

    @property
    def server_residual(self) -> NDArray[Any]:
        """r, (D,)."""
        return _on_host(self._r)

    @property
    def client_residual(self) -> NDArray[Any]:
        """e, (N, D)."""
        return _on_host(self._e)

    def conserved(self) -> FloatArray:
        """x + r + Σ w·e, (D,): moves only by the applied gradients, whatever was sent."""
        total = self.params + self.server_residual.astype(np.float64)
        residuals = self.client_residual
        for rows in self._some_rows():
            total += self._problem.weights[rows] @ residuals[rows].astype(np.float64)
            leave_memory(residuals)
        return np.asarray(total)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that a later process needs to go on, bit for bit."""
        queues = self._problem.policy.queues
        return {
            "params": self.params,
            "server_residual": self.server_residual,
            "client_residual": self.client_residual,
            "client_knowledge": self._accumulated.knowledge(),
            "server_knowledge": self._aggregated.knowledge(),
            "batches_used": self._batches.used,
            "iteration": np.array([self.iteration]),
        } | {f"queue.{knob}": np.atleast_1d(queue.length) for knob, queue in queues.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state; arrays that do not fit raise ValueError and change nothing."""
        expected = self.state()
        for name, array in expected.items():
            found = state.get(name)
            if found is None or found.shape != array.shape or found.dtype != array.dtype:
                shape = None if found is None else (found.shape, str(found.dtype))
                raise ValueError(f"{name} must be {array.dtype} of shape {array.shape}, got {shape}")
        self._x[:] = self._native(state["params"])
        self._r[:] = self._native(state["server_residual"])
        for rows in self._some_rows():
            self._e[rows] = self._native(state["client_residual"][rows])
            leave_memory(state["client_residual"])
            if self._by_numba:
                leave_memory(self._e)
        self._accumulated.recall(state["client_knowledge"])
        self._aggregated.recall(state["server_knowledge"])
        self._batches.used[:] = state["batches_used"]
        self.iteration = int(state["iteration"][0])
        for knob, queue in self._problem.policy.queues.items():
            queue.length = state[f"queue.{knob}"].reshape(queue.length.shape).copy()

    def _some_rows(self) -> Iterator[slice]:
        at_once = max(1, _GRADIENT_BYTES // (self._itemsize * self.dim))
        for begin in range(0, self.clients, at_once):
            yield slice(begin, begin + at_once)

    def _native(self, values: NDArray[Any]) -> Any:
        """As the arrays of this engine are kept."""
        return values if self._by_numba else torch.tensor(values, device=self._device)

    def release(self) -> None:
        """Leave the module as it was found; a later step takes hold of it again."""
        if isinstance(self.gradients, OnePass):
            self.gradients.release()

    def _accumulate(self, clients: IntArray, step: FloatArray, lap: Lap) -> float:
        """b = e − (η/q)·g for each of `clients`; returns the mean of their losses."""
        if not len(clients):
            return float("nan")
        total = 0.0
        seed_generator(self._streams.torch_seed("dropout", self.iteration), self._device)
        for group, samples in self._batches.draw(clients):
            for begin in range(0, len(group), self._chunk):
                part = slice(begin, begin + self._chunk)
                x, y = self._minibatch(group[part], samples[part])
                lap("minibatches")
                pieces, loss = self.gradients(x, y)
                lap("gradients")
                self._enter(group[part], step[group[part]], pieces)
                total += loss
                lap("residuals")
        return total / len(clients)

    def _enter(self, rows: IntArray, step: FloatArray, pieces: Pieces) -> None:
        """b[rows] += step·g, parameter by parameter."""
        model, factor, into = self._problem.model, step.astype(_numpy_dtype(self._e)), self._accumulated
        into.entering(rows)
        for name, place in zip(model.names, model.slices, strict=True):
            piece = pieces[name]
            if isinstance(piece, Outer):
                into.add_outer(rows, place.start, factor, self._given(piece.x), self._given(piece.g))
                continue
            if isinstance(piece, OverSamples):
                into.add_over_samples(rows, place.start, factor, self._given(piece.g))
                continue
            size = (place.stop - place.start) * self._itemsize
            at_once = max(1, _PIECE_BYTES // size)
            for begin in range(0, len(rows), at_once):
                part = slice(begin, begin + at_once)
                grads = piece.dense(part)
                into.add(rows[part], place.start, factor[part], self._given(grads.reshape(len(grads), -1)))
        into.entered(rows)

    def _given(self, tensor: Tensor) -> Any:
        """As the kernels take it."""
        return tensor.contiguous().numpy() if self._by_numba else tensor

    def _clients_at_once(self, x: Tensor, y: Tensor) -> int:
        """So many that gradients and activations stay within bounds; fixed, for the sake of resuming."""
        most = _GRADIENT_BYTES // (self._itemsize * self.dim)
        if isinstance(self.gradients, OnePass):
            self.gradients(x[:1], y[:1])
            self.gradients.release()  # what is held before the first step may never be given back
            numbers = self.gradients.activation_numbers * self._problem.batch_size // x.shape[1]
            most = min(most, _ACTIVATION_BYTES // max(1, self._itemsize * numbers))
        return max(1, most)

    def _minibatch(self, clients: IntArray, samples: IntArray) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(samples.reshape(-1)).to(self._device)
        x = self._train_x.index_select(0, chosen).view(*samples.shape, *self._train_x.shape[1:])
        y = self._train_y.index_select(0, chosen).view(*samples.shape, *self._train_y.shape[1:])
        if self._problem.augment is not None:
            x = self._problem.augment(x, clients, self.clients, self._streams, self.iteration)
        return x, y

    def _charge(
        self, knob: str, rule: ComputeRule | SendRule, cost: Cost, amount: Any, shape: tuple[int, ...]
    ) -> FloatArray:
        """(16)–(18): what the decision costs, charged to the queue."""
        spent = spread(cost(amount), shape)
        if not (spent.min() >= 0 and spent.max() < np.inf):  # NaN is neither
            worst = int(np.flatnonzero(~((spent >= 0) & np.isfinite(spent)))[0])
            who = f"client {worst}" if shape else "the server"
            raise CostError(knob, who, spent.flat[worst], self.iteration)
        if rule.queue is not None:
            rule.queue.charge(spent)
        return spent

    def _refuse_non_finite(self, who: str, what: str, energy: FloatArray) -> None:
        if not np.isfinite(energy).all():
            worst = int(np.flatnonzero(~np.isfinite(energy))[0])
            raise NonFiniteError(who.format(worst), what, self.iteration)


def _pressure(rule: ComputeRule | SendRule, shape: tuple[int, ...]) -> FloatArray:
    return np.full(shape, np.nan) if rule.queue is None else rule.queue.pressure.copy()


def _on_host(values: Any) -> NDArray[Any]:
    return values if isinstance(values, np.ndarray) else np.asarray(values.cpu().numpy())


def _numpy_dtype(values: Any) -> np.dtype[Any]:
    return np.dtype(str(values.dtype).removeprefix("torch."))
