"""Rules for the three knobs, and the online policy of Algorithm 2.

A policy is three rules: who computes, what each client sends, what the server sends. A rule
decides for all its entities at once, (N,) in a simulation or () for one deployed client, and
remembers nothing but its virtual queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number, spread
from flexfl.compress.base import Magnitudes
from flexfl.control import closed_form, search
from flexfl.control.queues import VirtualQueue
from flexfl.costs.base import Affine, Cost, Linear
from flexfl.streams import Moment

KNOBS = ("compute", "uplink", "downlink")


class ComputeRule(Protocol):
    """Decides q, the probability of computing in this iteration."""

    @property
    def queue(self) -> VirtualQueue | None: ...
    def decide(self, cost: Cost, moment: Moment) -> FloatArray: ...


class SendRule(Protocol):
    """Decides k, how many of the largest components are sent in this iteration.

    `cut` is the threshold on |b| that `decide` will ask `magnitudes` about, as far as it can be
    told before b is known: an engine can measure against it while b is being made.
    """

    @property
    def queue(self) -> VirtualQueue | None: ...
    def cut(self, cost: Cost) -> FloatArray: ...
    def decide(self, cost: Cost, magnitudes: Magnitudes, moment: Moment) -> IntArray: ...


@dataclass(frozen=True)
class Policy:
    """Three rules; `online`, and the constructors in `baselines`, make the usual ones."""

    compute: ComputeRule
    uplink: SendRule
    downlink: SendRule

    @property
    def queues(self) -> dict[str, VirtualQueue]:
        """The queues by knob; they are all the state that a policy has."""
        queues = {
            "compute": self.compute.queue,
            "uplink": self.uplink.queue,
            "downlink": self.downlink.queue,
        }
        return {knob: queue for knob, queue in queues.items() if queue is not None}


@dataclass(frozen=True)
class OnlineCompute:
    """Solves P3.1 in each iteration; entities without a budget always compute."""

    queue: VirtualQueue
    tradeoff: Number

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        queue = self.queue
        if isinstance(cost, Linear):
            q = closed_form.compute_prob(self.tradeoff, queue.pressure, cost.per_gradient)
        else:
            q = search.compute_prob(self.tradeoff, queue.pressure, cost)
        return np.where(queue.unlimited, 1.0, q) if queue.unlimited.any() else q


@dataclass(frozen=True)
class OnlineSend:
    """Solves P3.2 (or P3.3) in each iteration; entities without a budget send everything."""

    queue: VirtualQueue
    tradeoff: Number

    @property
    def _pressure(self) -> FloatArray:
        """No pressure makes the cut zero, which every non-zero component is above."""
        queue = self.queue
        return np.where(queue.unlimited, 0.0, queue.pressure) if queue.unlimited.any() else queue.pressure

    def cut(self, cost: Cost) -> FloatArray:
        if isinstance(cost, Affine):
            return closed_form.cut(self.tradeoff, self._pressure, cost.per_component)
        return np.zeros(())

    def decide(self, cost: Cost, magnitudes: Magnitudes, moment: Moment) -> IntArray:
        V, Phi = self.tradeoff, self._pressure
        if isinstance(cost, Affine):
            return closed_form.num_sent(V, Phi, cost.per_message, cost.per_component, magnitudes)
        return search.num_sent(V, Phi, cost, magnitudes)


class Unqueued:
    """What rules that keep no queue have in common; they ask about non-zero components only."""

    queue: ClassVar[None] = None

    def cut(self, cost: Cost) -> FloatArray:
        return np.zeros(())


@dataclass(frozen=True)
class FixedCompute(Unqueued):
    """Computes with the same probability in every iteration; 1 is full participation."""

    prob: Number = 1.0

    def decide(self, cost: Cost, moment: Moment) -> FloatArray:
        return spread(np.asarray(self.prob, dtype=np.float64), moment.shape)


@dataclass(frozen=True)
class SendAll(Unqueued):
    """Sends every non-zero component in every iteration."""

    def decide(self, cost: Cost, magnitudes: Magnitudes, moment: Moment) -> IntArray:
        nonzero, _ = magnitudes.above(0.0)
        return nonzero


def online(
    *,
    compute: VirtualQueue | None = None,
    uplink: VirtualQueue | None = None,
    downlink: VirtualQueue | None = None,
    tradeoff: Number | dict[str, Number] = 0.02,
) -> Policy:
    """Algorithm 2. A knob without a queue is left uncontrolled: computes always, sends everything.

    tradeoff is V: one for all, or a mapping by knob; each a number or one for each entity.
    """
    V = tradeoff if isinstance(tradeoff, dict) else dict.fromkeys(("compute", "uplink", "downlink"), tradeoff)
    return Policy(
        compute=OnlineCompute(compute, V["compute"]) if compute else FixedCompute(),
        uplink=OnlineSend(uplink, V["uplink"]) if uplink else SendAll(),
        downlink=OnlineSend(downlink, V["downlink"]) if downlink else SendAll(),
    )
