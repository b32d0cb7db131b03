"""A client's half of an iteration: lines 5 to 8 of Algorithm 1, under the decisions of its knobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm.steps import accumulate, change_factor
from flexfl.clock import Clock, NoClock
from flexfl.compress.message import Message
from flexfl.control.allowance import RemoteAllowance
from flexfl.control.joint import JointQueues
from flexfl.control.knobs import Knob, Sender
from flexfl.control.price import RemoteJointPrice, RemotePrice
from flexfl.control.queues import RemoteQueue
from flexfl.control.shared import FIRST, JOINT, JOINT_SPENT, LEFT
from flexfl.deploy.protocol.messages import SPENT
from flexfl.errors import NonFiniteError
from flexfl.local import ClientWork, OneGradient
from flexfl.state import State, restore_all, state_of

Vector = NDArray[Any]
Gradient = Callable[[Vector, int, int, int], tuple[Vector, float]]
"""g_n(x): parameters, which minibatch, iteration, local step → (D,), and the loss of the minibatch."""
Evaluate = Callable[[Vector], dict[str, float]]
"""The metrics of a model over all samples of a client."""


@dataclass(frozen=True, eq=False)
class StepResult:
    """What an iteration led to at a client.

    Attributes:
        message: v.
        accumulated: b, (D,).
        residual: e after the iteration, (D,).
        computed: whether the client has computed.
        minibatches: how many it has used for that.
        metrics: by the names of `results.columns`.
    """

    message: Message
    accumulated: Vector
    residual: Vector
    computed: bool
    minibatches: int
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Trainer:
    """What a client computes and decides with; all that it remembers is in its knobs, queues and work.

    Attributes:
        compute: decides whether it computes.
        uplink: decides what it sends.
        learning_rate: η_t by iteration; None for one that follows the messages of all: the server sends it.
        gradient: the client's gradients.
        evaluate: how good a model is on its samples.
        joint: the queues of joint budgets that its decisions are charged to.
        clock: of the run, as this client sees it.
        stopwatch: what a computation takes is the difference of two readings; seconds, or joules.
        work: what it computes in an iteration.
    """

    compute: Knob
    uplink: Sender
    learning_rate: Callable[[int], float | None]
    gradient: Gradient
    evaluate: Evaluate = lambda params: {}
    joint: JointQueues | None = None
    clock: Clock = field(default_factory=NoClock)
    stopwatch: Callable[[], float] = lambda: time.perf_counter()
    work: ClientWork = field(default_factory=lambda: ClientWork(OneGradient()))

    def step(self, t: int, x: Vector, e: Vector, used: int, eta: float) -> StepResult:
        """Run lines 5 to 8 of iteration t.

        Args:
            t: the iteration.
            x: the model, (D,).
            e: the client's residual, (D,).
            used: how many minibatches the client has used before.
            eta: η_t.

        Raises:
            NonFiniteError: the gradient is not finite.
        """
        computing = self.compute.decide(t)  # P3.1, (16), line 5
        metrics: dict[str, Any] = computing.record()
        b, minibatches = e, 0
        if computing.computed:
            start = self.stopwatch()
            delta, metrics["batch_loss"] = self._change(t, x, used, eta)
            minibatches = self.work.local.gradients
            factor = change_factor(computing.prob, computing.computed).astype(e.dtype)
            b = accumulate(e, delta, factor)  # line 6
            spent = self.stopwatch() - start
            if self.compute.observe(spent):
                metrics["compute_spent"] = spent
            if not np.isfinite(b).all():
                raise NonFiniteError(self.compute.entities.name(0), "the gradient", t)
        [message], e, sending = self.uplink.send(t, b)  # P3.2, (17), lines 7–8
        metrics |= sending.record()
        metrics["uplink_objective"] = np.square(e, dtype=np.float64).sum()
        metrics |= self._first_prices() | self._close_joint()
        return StepResult(message, b, e, bool(computing.computed), minibatches, metrics)

    def _change(self, t: int, x: Vector, used: int, eta: float) -> tuple[Vector, float]:
        """Return Δ, (D,), and the mean loss of its minibatches, each before its step."""
        losses: list[float] = []

        def gradient(y: Vector, k: int) -> Vector:
            g, loss = self.gradient(y, used + k, t, k)
            losses.append(loss)
            return g

        delta = self.work.change(gradient, x, eta)
        return delta, float(np.mean(losses)) if losses else math.nan

    def resend(self, t: int, components: int, nbytes: int) -> dict[str, Any]:
        """Pay for an earlier message that is sent once more in iteration t, and do nothing else.

        Returns:
            The metrics of the iteration.
        """
        computing = self.compute.idle(t)
        sending = self.uplink.resend(t, components, nbytes)
        return computing.record() | sending.record() | self._close_joint()

    def _first_prices(self) -> dict[str, float]:
        """Return the prices that began in this iteration and that the server keeps from now on."""
        return {
            knob.role + FIRST: float(price.first)
            for knob in (self.compute, self.uplink)
            for price in knob.remote
            if isinstance(price, RemotePrice)
        }

    def _close_joint(self) -> dict[str, float]:
        """End the iteration of joint budgets; return what was charged to each."""
        if self.joint is None:
            return {}
        charged = {JOINT + name: float(charged.sum()) for name, charged in self.joint.charged.items()}
        spent = {JOINT_SPENT + name: float(spent.sum()) for name, spent in self.joint.spent.items()}
        self.joint.close()
        return charged | spent

    def learn(self, lengths: Mapping[str, float]) -> None:
        """Take over the queues that the server keeps, by knob or name of a joint budget."""
        for knob in (self.compute, self.uplink):
            for queue in knob.remote:
                if isinstance(queue, RemotePrice):
                    queue.learn(lengths.get(knob.role))
                elif isinstance(queue, RemoteQueue):
                    queue.learn(lengths[knob.role])
            if isinstance(knob.allowance, RemoteAllowance):
                knob.allowance.learn(lengths.get(knob.role + LEFT))
        if self.joint is None:
            return
        for name, joint in self.joint.queues.items():
            if isinstance(joint, RemoteQueue | RemoteJointPrice) and self.joint.budgets[name].limits.size:
                joint.learn(lengths[name])
                allowance = self.joint.allowances[name]
                if isinstance(allowance, RemoteAllowance):
                    allowance.learn(lengths.get(name + LEFT))

    @property
    def totalled(self) -> tuple[str, ...]:
        """The metrics that are also reported as totals, so that the cost of a lost answer is not lost."""
        charged = ("compute_cost",) if self.compute.remote else ()
        names = self.joint.queues if self.joint else ()
        return SPENT + charged + tuple(kind + name for name in names for kind in (JOINT, JOINT_SPENT))

    def skip(self, iterations: int) -> None:
        """Let iterations pass in which the client took no part: it spends nothing."""
        self.compute.skip(iterations)
        self.uplink.skip(iterations)
        for _ in range(iterations if self.joint else 0):
            self._close_joint()

    def state(self) -> State:
        return state_of(**self._memories)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, **self._memories)

    @property
    def _memories(self) -> dict[str, object]:
        knobs = {"compute": self.compute, "uplink": self.uplink, "joint": self.joint}
        return knobs | {"clock": self.clock, "local": self.work}
