"""One client's part of an iteration: lines 5 to 8 of Algorithm 1 under its own decisions.

The same steps and rules as in a simulation, over (D,) and (): a client solves P3.1 and P3.2 from
its own costs and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm import client
from flexfl.compress.topk import DenseMagnitudes, topk
from flexfl.control.policy import Policy
from flexfl.costs.base import Cost, CostModel
from flexfl.errors import NonFiniteError
from flexfl.streams import Moment, Streams
from flexfl.wire.sparse import message_bytes, sendable

Vector = NDArray[Any]
Gradient = Callable[[Vector, int], Vector]
"""g_n(x): the parameters and how many minibatches this client has used → (D,)."""


@dataclass(frozen=True)
class Made:
    """What came out: the message v, what stays, and what to tell."""

    message: Vector  # v, (D,)
    residual: Vector  # e', (D,)
    used: int
    told: dict[str, float]


@dataclass(frozen=True)
class Work:
    """All that a client brings along.

    place    which of the `clients` it is: it takes the n-th of the numbers drawn for all
    policy   its own rules for computing and the uplink, with queues of shape ()
    values   how its messages carry numbers; what rounding drops stays in the residual
    """

    place: int
    clients: int
    policy: Policy
    costs: Mapping[str, CostModel]
    streams: Streams
    learning_rate: float
    gradient: Gradient
    values: str = "float32"

    def step(self, iteration: int, params: Vector, residual: Vector, used: int) -> Made:
        dim = len(params)
        moment = self.streams.moment("compute", iteration, dim, (self.clients,)).of(self.place)
        cost = self.costs["compute"].at(moment)
        rule = self.policy.compute
        q = rule.decide(cost, moment)  # P3.1
        told = {"compute_prob": float(q), "compute_cost": float(cost(q))}
        if rule.queue is not None:
            told["compute_queue"] = float(rule.queue.pressure)
            rule.queue.charge(cost(q))  # (16)
        computed = bool(client.computes(q, moment.uniform("bernoulli")))  # line 5
        told |= {"computed": float(computed), "compute_spent": float(cost(float(computed)))}
        accumulated = residual
        if computed:
            step = client.step_size(self.learning_rate, q, np.asarray(True)).astype(residual.dtype)
            accumulated = client.accumulate(residual, self.gradient(params, used), step)  # line 6
            if not np.isfinite(accumulated).all():
                raise NonFiniteError("this client", "the gradient", iteration)
        message, sent = self._send(iteration, accumulated)
        return Made(message, client.keep(accumulated, message), used + computed, told | sent)  # line 7

    def _send(self, iteration: int, accumulated: Vector) -> tuple[Vector, dict[str, float]]:
        moment, cost = self._uplink(iteration, len(accumulated))
        k = self.policy.uplink.decide(cost, DenseMagnitudes(accumulated), moment)  # P3.2
        return sendable(topk(accumulated, k), self.values), self._pay(cost, int(k), len(accumulated))

    def send_again(self, iteration: int, components: int, dim: int) -> dict[str, float]:
        """An iteration in which an earlier update goes once more: paid again, and nothing else is done."""
        if (queue := self.policy.compute.queue) is not None:
            queue.charge(0.0)
        return self._pay(self._uplink(iteration, dim)[1], components, dim)

    def _uplink(self, iteration: int, dim: int) -> tuple[Moment, Cost]:
        moment = self.streams.moment("uplink", iteration, dim, (self.clients,)).of(self.place)
        return moment, self.costs["uplink"].at(moment)

    def _pay(self, cost: Cost, k: int, dim: int) -> dict[str, float]:
        told = {"uplink_components": float(k), "uplink_cost": float(cost(k))}
        told["uplink_bytes"] = float(message_bytes(np.asarray(k), dim, self.values))
        if (queue := self.policy.uplink.queue) is not None:
            told["uplink_queue"] = float(queue.pressure)
            queue.charge(cost(k))  # (17)
        return told

    def pass_by(self, iterations: int) -> None:
        """Iterations without this client: it spends nothing, and its queues go down."""
        for queue in (self.policy.compute.queue, self.policy.uplink.queue):
            if queue is not None:
                for _ in range(iterations):
                    queue.charge(0.0)

    @property
    def queues(self) -> dict[str, float]:
        """How long its queues are: all the state that its decisions have."""
        return {knob: float(queue.length) for knob, queue in self.policy.queues.items() if knob != "downlink"}

    def recall(self, lengths: Mapping[str, float]) -> None:
        """Go on with these queues."""
        for knob, length in lengths.items():
            self.policy.queues[knob].length = np.asarray(length, dtype=np.float64)
