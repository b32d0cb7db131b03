"""The server's part of an iteration: lines 10 to 12 of Algorithm 1 under its own decision, P3.3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm.client import keep
from flexfl.compress.topk import DenseMagnitudes, topk
from flexfl.control.policy import SendRule
from flexfl.costs import CostModel, Measured
from flexfl.deploy.protocol.work import measured, recall_measured
from flexfl.streams import Streams
from flexfl.wire.sparse import encode, sendable

Vector = NDArray[Any]


@dataclass(frozen=True)
class Broadcast:
    """What came out: the update u, also as bytes, what stays, and what to tell."""

    update: Vector  # u, (D,)
    encoded: bytes
    residual: Vector  # r', (D,)
    told: dict[str, float]


@dataclass(frozen=True)
class Downlink:
    """All that the server decides with."""

    rule: SendRule
    cost: CostModel
    streams: Streams
    values: str = "float32"

    def send(self, iteration: int, aggregated: Vector) -> Broadcast:
        moment = self.streams.moment("downlink", iteration, len(aggregated))
        cost = self.cost.at(moment)
        k = int(self.rule.decide(cost, DenseMagnitudes(aggregated), moment))  # P3.3
        update = sendable(topk(aggregated, np.asarray(k)), self.values)
        encoded, kept = encode(update, self.values), keep(aggregated, update)  # line 11
        told = {
            "downlink_components": float(k),
            "downlink_bytes": float(len(encoded)),
            "downlink_cost": float(cost(k)),
            "downlink_objective": float(np.square(kept, dtype=np.float64).sum()),
        }
        if isinstance(self.cost, Measured):
            told["downlink_cost"] = float(len(encoded))
            self.cost.observe(float(k), len(encoded))
        if (queue := self.rule.queue) is not None:
            told["downlink_queue"] = float(queue.pressure)
            queue.charge(told["downlink_cost"])  # (18)
        return Broadcast(update, encoded, kept, told)

    @property
    def memory(self) -> dict[str, float]:
        """All that the next decision depends on, as for `Work`."""
        queue = self.rule.queue
        lengths = {} if queue is None else {"queue.downlink": float(queue.length)}
        return lengths | measured({"downlink": self.cost})

    def recall(self, memory: Mapping[str, float]) -> None:
        """Go on with it."""
        if (queue := self.rule.queue) is not None:
            queue.length = np.asarray(memory["queue.downlink"], dtype=np.float64)
        recall_measured({"downlink": self.cost}, memory)
