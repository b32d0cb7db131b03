"""One client's part of an iteration: lines 5 to 8 of Algorithm 1 under its own decisions.

The same steps and rules as in a simulation, over (D,) and (): a client solves P3.1 and P3.2 from
its own costs and queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm import client
from flexfl.compress.topk import DenseMagnitudes, topk
from flexfl.control.policy import Policy
from flexfl.costs import Cost, CostModel, Measured
from flexfl.errors import NonFiniteError
from flexfl.streams import Moment, Streams
from flexfl.wire.sparse import encode, sendable

Vector = NDArray[Any]
Gradient = Callable[[Vector, int, int], tuple[Vector, float]]
"""g_n(x): parameters, minibatches used so far, iteration → (D,), and the loss of the minibatch."""
Evaluate = Callable[[Vector], dict[str, float]]
"""What a client tells of a model, over all its samples."""


@dataclass(frozen=True)
class Made:
    """What came out: the message v as bytes, what stays, and what to tell."""

    update: bytes
    accumulated: Vector  # b, (D,)
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
    evaluate: Evaluate = lambda params: {}

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
            began = time.perf_counter()
            gradient, told["batch_loss"] = self.gradient(params, used, iteration)
            accumulated = client.accumulate(residual, gradient, step)  # line 6
            if isinstance(model := self.costs["compute"], Measured):
                told["compute_spent"] = time.perf_counter() - began
                model.observe(1.0, told["compute_spent"])
            if not np.isfinite(accumulated).all():
                raise NonFiniteError("this client", "the gradient", iteration)
        moment, cost = self._uplink(iteration, dim)
        k = self.policy.uplink.decide(cost, DenseMagnitudes(accumulated), moment)  # P3.2
        message = sendable(topk(accumulated, k), self.values)
        update, kept = encode(message, self.values), client.keep(accumulated, message)  # line 7
        told |= self._pay(cost, int(k), len(update))
        told["uplink_objective"] = float(np.square(kept, dtype=np.float64).sum())
        return Made(update, accumulated, kept, used + computed, told)

    def send_again(self, iteration: int, components: int, size: int, dim: int) -> dict[str, float]:
        """An iteration in which an earlier update goes once more: paid again, and nothing else is done."""
        told = {"computed": 0.0, "compute_cost": 0.0, "compute_spent": 0.0}
        if (queue := self.policy.compute.queue) is not None:
            told["compute_queue"] = float(queue.pressure)
            queue.charge(0.0)
        return told | self._pay(self._uplink(iteration, dim)[1], components, size)

    def _uplink(self, iteration: int, dim: int) -> tuple[Moment, Cost]:
        moment = self.streams.moment("uplink", iteration, dim, (self.clients,)).of(self.place)
        return moment, self.costs["uplink"].at(moment)

    def _pay(self, cost: Cost, k: int, size: int) -> dict[str, float]:
        told = {"uplink_components": float(k), "uplink_bytes": float(size), "uplink_cost": float(cost(k))}
        if isinstance(model := self.costs["uplink"], Measured):
            told["uplink_cost"] = float(size)
            model.observe(k, size)
        if (queue := self.policy.uplink.queue) is not None:
            told["uplink_queue"] = float(queue.pressure)
            queue.charge(told["uplink_cost"])  # (17)
        return told

    def pass_by(self, iterations: int) -> None:
        """Iterations without this client: it spends nothing, and its queues go down."""
        for queue in (self.policy.compute.queue, self.policy.uplink.queue):
            if queue is not None:
                for _ in range(iterations):
                    queue.charge(0.0)

    @property
    def memory(self) -> dict[str, float]:
        """All that its decisions depend on: the lengths of its queues, and what costs were measured to be."""
        queues = {
            f"queue.{knob}": float(queue.length)
            for knob, queue in self.policy.queues.items()
            if knob != "downlink"
        }
        return queues | measured(self.costs)

    def recall(self, memory: Mapping[str, float]) -> None:
        """Go on with it."""
        for knob, queue in self.policy.queues.items():
            if knob != "downlink":
                queue.length = np.asarray(memory[f"queue.{knob}"], dtype=np.float64)
        recall_measured(self.costs, memory)


def measured(costs: Mapping[str, CostModel]) -> dict[str, float]:
    """What those of the costs that are measured have found so far."""
    return {f"cost.{knob}": model.estimate for knob, model in costs.items() if isinstance(model, Measured)}


def recall_measured(costs: Mapping[str, CostModel], memory: Mapping[str, float]) -> None:
    """Go on from there."""
    for knob, model in costs.items():
        if isinstance(model, Measured):
            model.estimate = memory[f"cost.{knob}"]
