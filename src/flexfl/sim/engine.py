"""One iteration after another: Algorithms 1 and 2 for all clients at once.

The steps are those of `algorithm.reference`, which the tests hold this engine against. What
differs is how: one pass through the network for everyone who computes, residuals updated in
place, selection by threshold in fused passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexfl.arrays import FloatArray, IntArray
from flexfl.control.knobs import Computing, Sending
from flexfl.control.timing import VirtualClock
from flexfl.data.minibatches import Minibatches
from flexfl.errors import NonFiniteError
from flexfl.learning_rate import LearningRate
from flexfl.local import OneGradient
from flexfl.mapped import leave_memory
from flexfl.models.flat import own_generator, seed_generator
from flexfl.sim.averaged import Averaged
from flexfl.sim.entering import enter
from flexfl.sim.flight import InFlight
from flexfl.sim.gradients import Pieces, Recheck, choose, clients_at_once
from flexfl.sim.gradients.recheck import RECHECK, RECHECK_RATE
from flexfl.sim.local import LocalSteps, Zeros
from flexfl.sim.plain_residuals import residuals_for
from flexfl.sim.problem import Problem as Problem
from flexfl.sim.vectors import on_host, some_rows
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities
from flexfl.trees import Tree, converted, gathered

_ROW_BYTES = 64 * 2**20

Lap = Callable[[str], None]


class Engine:
    """Holds x, r and all e, in `average` x̄; `step` runs one iteration and returns its record."""

    def __init__(
        self,
        problem: Problem,
        *,
        kernels: str | None = None,
        residuals: NDArray[Any] | None = None,
        gradients: str = "auto",
        zeros: Zeros | None = None,
    ) -> None:
        """Set up the first iteration.

        Args:
            problem: what is trained.
            kernels: "numba" or "torch"; by default numba for a model on the CPU.
            residuals: where e is kept, (N, D) zeros; by default an array in memory.
            gradients: the path by which gradients are made (`gradients.choose`).
            zeros: makes what local work remembers, (N, …); by default in memory.
        """
        self._problem, self._streams = problem, problem.streams
        self._batches = Minibatches(problem.data.parts, problem.batch_size, self._streams)
        self.clients, self.dim = problem.data.clients, problem.model.dim
        x = problem.model.params
        self._device = x.device
        data, self._plain = problem.data, problem.data.plain
        self._train_x, self._train_y = (
            converted(tree, x.device, x.dtype) for tree in (data.train_x, data.train_y)
        )
        everyone, server = Entities.all_clients(self.clients), Entities.the_server()
        setup = problem.setup.weighted(problem.weights).started(self.clients, self.dim)
        self._clock = setup.clock if isinstance(setup.clock, VirtualClock) else None
        self._flight = InFlight(self.dim)
        self.joint = setup.joint_queues()
        self._compute = setup.knob(everyone, self.dim, self.joint)
        self._uplink = setup.sender("uplink", everyone, self.dim, self.joint)
        self._downlink = setup.sender("downlink", server, self.dim, self.joint)
        self._by_numba = (kernels or ("numba" if x.device.type == "cpu" else "torch")) == "numba"
        self._x: Any = x.numpy() if self._by_numba else x
        e: Any = residuals if residuals is not None else x.new_zeros((self.clients, self.dim))
        r: Any = torch.zeros_like(x)
        if self._by_numba:
            e, r = (t.numpy() if isinstance(t, Tensor) else t for t in (e, r))
        # b and e, a and r share their memory: what is not sent stays where it is.
        self._b = residuals_for(self._uplink.compressor, e, counts=self._uplink.counts, empty=True)
        self._a = residuals_for(self._downlink.compressor, r, counts=self._downlink.counts, empty=True)
        self._rate = LearningRate(problem.learning_rate, setup.factor)
        self.average = Averaged(self._x) if problem.average else None
        self.iteration = 0
        self._choose_gradients(gradients, zeros)

    def _choose_gradients(self, wanted: str, zeros: Zeros | None) -> None:
        # Two clients, as many samples of each: enough to tell clients from a mixture.
        pair = np.array([0, self.clients - 1])
        drawn = [self._batches.peek(int(n), 0) for n in pair]
        fewest = min(map(len, drawn))
        example = self._minibatch(pair, np.stack([samples[:fewest] for samples in drawn]))
        with own_generator():  # a model may draw random numbers while it is tried
            seed_generator(0, self._device)
            self.gradients = choose(self._problem.model, self._problem.loss, *example, wanted)
            params, B = self._problem.model.params, self._problem.batch_size
            self._chunk = clients_at_once(self.gradients, params, B, *example)
        self._draws = self.gradients.draws
        is_papers = type(self._problem.setup.local) is OneGradient
        self._local = None if is_papers else LocalSteps(self._problem, example, wanted, zeros)
        self.recheck: Recheck | None = Recheck(
            self.gradients, self._problem.model, self._problem.loss, self._streams
        )

    @np.errstate(invalid="ignore")  # what is not a number is found and reported with its name
    def step(self, lap: Lap = lambda stage: None) -> dict[str, Any]:
        """Run one iteration, as `algorithm.reference` has it.

        Args:
            lap: called with the name of each stage when it ends.

        Returns:
            The record that `results.columns` describes.
        """
        t, w, eta = self.iteration, self._problem.weights, self._rate.at(self.iteration)
        away = None if self._clock is None else self._clock.begin(t)
        computing = self._compute.decide(t, away)  # P3.1, (16), line 5
        lap("who computes")
        self._b.expect(*self._uplink.prepare(t))
        loss = self._accumulate(computing, eta, lap)  # line 6: b = e + (𝟙/q)·Δ, where Δ = −η·g
        up = self._uplink.decide(t, self._b, away)  # P3.2, (17)
        self._refuse_non_finite("client {}", "the gradient", self._b.energy)
        lap("what to send")
        arrived = up.amounts if self._clock is None else self._wait(computing, up, self._clock)
        v = self._b.take(arrived)  # lines 7–8: e = b − v
        v.add_to(self._a.vectors, w)  # line 10: a = r + Σ w·v
        self._a.changed()
        lap("sending")
        self._a.expect(*self._downlink.prepare(t))
        down = self._downlink.decide(t, self._a)  # P3.3, (18)
        self._refuse_non_finite("the server", "the aggregated update", self._a.energy)
        u = self._a.take(down.amounts)  # lines 11–12: r = a − u
        u.add_to(self._x)  # line 14: x = x + u
        senders = int(np.count_nonzero(up.components))
        self._rate.add(senders / self.clients)
        if self.average is not None:
            self.average.add(self._x, t)
        if self.joint.budgets:
            self.joint.close()
        if self._clock is not None:
            self._clock.advance(down)
        self.iteration += 1
        lap("server")
        return {
            "iteration": t,
            "clock": self._downlink.seconds,
            "batch_loss": loss,
            "senders": senders,
            "learning_rate": eta,
            "uplink_objective": self._b.energy.copy(),  # ‖b − v‖²
            "downlink_objective": float(self._a.energy),  # ‖a − u‖²
            **computing.record(),
            **up.record(),
            **{name: value.item() for name, value in down.record().items()},
        }

    def _wait(self, computing: Computing, up: Sending, clock: VirtualClock) -> IntArray:
        """Wait for the clients; return the amounts that have arrived, and keep late messages in flight."""
        arrivals, arrived = clock.wait(computing, up), up.amounts
        self._flight.land(arrivals.landed, self._problem.weights, self._a.vectors)
        for n in arrivals.late.tolist():
            message, alone = self._x * 0, np.where(np.arange(self.clients) == n, up.amounts, 0)
            self._b.take(alone).add_to(message)
            self._flight.launch(n, on_host(message))
            arrived = arrived - alone
        return arrived

    @property
    def seconds(self) -> float:
        """Seconds since the run began, by its clock; NaN without one."""
        return self._downlink.seconds

    @property
    def params(self) -> NDArray[Any]:
        """x, (D,)."""
        return on_host(self._x)

    @property
    def server_residual(self) -> NDArray[Any]:
        """r, (D,)."""
        return on_host(self._a.vectors)

    @property
    def client_residual(self) -> NDArray[Any]:
        """e, (N, D)."""
        return on_host(self._b.vectors)

    def conserved(self) -> FloatArray:
        """x + r + Σ w·(e + in flight), (D,): moves only by the applied changes, whatever was sent."""
        total = self.params + self.server_residual.astype(np.float64)
        total += self._flight.total(self._problem.weights)
        residuals = self.client_residual
        for rows in some_rows(residuals, _ROW_BYTES):
            total += self._problem.weights[rows] @ residuals[rows].astype(np.float64)
            leave_memory(residuals)
        return np.asarray(total)

    def state(self) -> State:
        """Return all that a later process needs to continue, bit for bit."""
        return {
            "params": self.params,
            "server_residual": self.server_residual,
            "client_residual": self.client_residual,
            "client_knowledge": self._b.knowledge(),
            "server_knowledge": self._a.knowledge(),
            "batches_used": self._batches.used,
            "iteration": np.array([self.iteration]),
            **({} if self._local is None else self._local.state()),
        } | state_of(**self._knobs)

    @property
    def _knobs(self) -> dict[str, Any]:
        knobs = {"compute": self._compute, "uplink": self._uplink, "downlink": self._downlink}
        timed = {} if self._clock is None else {"clock": self._clock, "flight": self._flight}
        return {**knobs, "joint": self.joint, **timed, "rate": self._rate, "average": self.average}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state; one that does not fit raises ValueError and changes nothing."""
        own = self.state()
        for name in own.keys() - state_of(**self._knobs).keys():
            array, found = own[name], state.get(name)
            if found is None or found.shape != array.shape or found.dtype != array.dtype:
                shape = None if found is None else (found.shape, str(found.dtype))
                raise ValueError(f"{name} must be {array.dtype} of shape {array.shape}, got {shape}")
        before = state_of(**self._knobs)
        try:
            restore_all(state, **self._knobs)
        except Exception:
            restore_all(before, **self._knobs)
            raise
        self._x[:] = self._native(state["params"])
        self._a.vectors[:] = self._native(state["server_residual"])
        e = self._b.vectors
        for rows in some_rows(e, _ROW_BYTES):
            e[rows] = self._native(state["client_residual"][rows])
            leave_memory(state["client_residual"])
            if isinstance(e, np.ndarray):
                leave_memory(e)
        self._b.recall(state["client_knowledge"])
        self._a.recall(state["server_knowledge"])
        if self._local is not None:
            self._local.restore(state, some_rows(e, _ROW_BYTES))
        self._batches.used[:] = state["batches_used"]
        self.iteration = int(state["iteration"][0])

    def _native(self, values: NDArray[Any]) -> Any:
        """As the arrays of this engine are kept."""
        return values if self._by_numba else torch.tensor(values, device=self._device)

    def release(self) -> None:
        """Leave the module as it was found; a later step takes hold of it again."""
        self.gradients.release()

    def _accumulate(self, computing: Computing, eta: float, lap: Lap) -> float:
        """Add Δ/q to the residual of each client that computes; return the mean of their losses."""
        clients, total = computing.computed.nonzero()[0], 0.0
        if not len(clients):
            return float("nan")
        if self._draws:
            seed_generator(self._streams.torch_seed("dropout", self.iteration), self._device)
        picked = self._pick(clients)
        if self._local is not None:
            return self._accumulate_work(self._local, clients, eta, 1.0 / computing.prob, picked, lap)
        step = -eta / computing.prob  # of those who compute: 𝟙 = 1
        for group, samples in self._batches.draw(clients):
            for begin in range(0, len(group), self._chunk):
                part = slice(begin, begin + self._chunk)
                x, y = self._minibatch(group[part], samples[part])
                lap("minibatches")
                pieces, loss = self._gradients_at_x(picked, group[part], x, y)
                lap("gradients")
                enter(self._b, self._problem.model, group[part], step[group[part]], pieces)
                total += loss
                lap("residuals")
        return total / len(clients)

    def _accumulate_work(
        self,
        local: LocalSteps,
        clients: IntArray,
        eta: float,
        factor: FloatArray,
        picked: int | None,
        lap: Lap,
    ) -> float:
        """The same for local work other than the paper's: several steps, or with a memory."""
        total, at_once = 0.0, min(self._chunk, local.at_once)
        for group in self._batches.by_size(clients):
            for begin in range(0, len(group), at_once):
                rows = group[begin : begin + at_once]
                minibatch, at_x = (
                    partial(self._step_minibatch, rows),
                    partial(self._gradients_at_x, picked, rows),
                )
                pieces, loss = local.change(rows, eta, minibatch, at_x)
                lap("gradients")
                enter(self._b, self._problem.model, rows, factor[rows], pieces)
                total += loss
                lap("residuals")
        self._batches.used[clients] += local.local.gradients
        return total / len(clients)

    def _pick(self, clients: IntArray) -> int | None:
        """Return a client whose gradient is to be checked in this iteration, now and then."""
        if self.recheck is None or self._streams.uniform(RECHECK, self.iteration) >= RECHECK_RATE:
            return None
        return self.recheck.pick(clients, self.iteration)

    def _gradients_at_x(
        self, picked: int | None, clients: IntArray, x: Tree, y: Tree
    ) -> tuple[Pieces, float]:
        """Return the gradients at x of these clients, that of the picked one checked."""
        if picked is None or self.recheck is None:
            return self.gradients(x, y)
        probe = self.recheck.probe(picked, clients, x, y, self.iteration)  # before the pass may change x
        pieces, loss = self.gradients(x, y)
        self.recheck.compare(probe, pieces)
        return pieces, loss

    def _step_minibatch(self, clients: IntArray, step: int) -> tuple[Tree, Tree]:
        return self._minibatch(clients, self._batches.ahead(clients, step), step)

    def _minibatch(self, clients: IntArray, samples: IntArray, step: int = 0) -> tuple[Tree, Tree]:
        chosen = torch.from_numpy(samples.reshape(-1)).to(self._device)
        if not self._plain:
            x = gathered(self._train_x, chosen, samples.shape)
            whole = self._problem.data.train_y is self._problem.data.train_x
            return x, x if whole else gathered(self._train_y, chosen, samples.shape)
        x = self._train_x.index_select(0, chosen).view(*samples.shape, *self._train_x.shape[1:])
        y = self._train_y.index_select(0, chosen).view(*samples.shape, *self._train_y.shape[1:])
        if self._problem.augment is not None:
            x = self._problem.augment(x, clients, self.clients, self._streams, self.iteration, step)
        return x, y

    def _refuse_non_finite(self, who: str, what: str, energy: FloatArray) -> None:
        if not np.isfinite(energy).all():
            worst = int(np.flatnonzero(~np.isfinite(energy))[0])
            raise NonFiniteError(who.format(worst), what, self.iteration)
