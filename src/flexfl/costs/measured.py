"""Costs that are measured: seconds or joules of computing, bytes of messages.

A decision needs the cost before it is known, so it is estimated from what was measured before, smoothed:
ĉ ← ĉ + s·(c − ĉ) with `smoothing` s. What is charged for a message is what was really written, or what the
link has really carried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import Count, FloatArray, Number
from flexfl.costs.linear import Affine, Linear
from flexfl.costs.link import LinkBytes, Total
from flexfl.parameters import Rule, Share, from_zero
from flexfl.state import State
from flexfl.streams import Moment

_Bytes = Annotated[float, Rule("must be ≥ 0 and finite", from_zero, "give a number of bytes")]


@dataclass
class MeasuredCompute:
    """λ = α̂·q with α̂ as `count` says; before the first computation nothing is known, and it is free.

    `count` is "seconds", "rapl" (joules of the processor, counted by itself) or "nvml" (joules of NVIDIA's
    GPUs); a client that cannot count joules says so before it takes part.
    """

    needs_clock: ClassVar[bool] = True
    """Only available in deployments: a simulation does not run at the clients' pace."""
    margin: ClassVar[float] = 2.0
    """What a computation took is known afterwards: with less than twice the estimate left, none is begun."""
    smoothing: Share = 0.1
    count: Literal["seconds", "rapl", "nvml"] = "seconds"
    estimate: FloatArray = field(default_factory=lambda: np.zeros(()), init=False)

    @property
    def unit(self) -> str:
        """What it is counted in."""
        return "second" if self.count == "seconds" else "joule"

    def at(self, moment: Moment) -> Linear:
        self.estimate = np.broadcast_to(self.estimate, moment.shape)
        return Linear(self.estimate)

    def observe(self, amount: Number | Count, cost: Number) -> None:
        found = np.asarray(cost, dtype=float) / np.asarray(amount)
        share = np.where(self.estimate > 0, self.smoothing, 1.0)
        self.estimate = np.asarray((1.0 - share) * self.estimate + share * found)

    def state(self) -> State:
        return {"estimate": np.asarray(self.estimate)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.estimate = np.asarray(state["estimate"], dtype=float)


@dataclass
class MeasuredMessage:
    """φ = β + γ̂·k in bytes: β `per_message` is the codec's header, γ̂ what a component has taken so far.

    `per_component` is the first guess of γ̂: a value of four bytes and one for its place. With `count` =
    "link", in a deployment whose machine counts them, bytes are those on the link: what transport, TLS,
    acknowledgements and heartbeats add is estimated (`costs.link`), and charged as counted. Elsewhere, and
    with "payload", they are those of the message. With `counts` = "bytes" nothing is guessed: plans go by the
    size of each message that could be sent, which `levels` needs to weigh components against bits.
    """

    unit: ClassVar[str] = "byte"
    smoothing: Share = 0.1
    per_message: _Bytes = 20.0
    per_component: _Bytes = 5.0
    count: Literal["link", "payload"] = "link"
    counts: Literal["components", "bytes"] = "components"
    estimate: FloatArray = field(default_factory=lambda: np.zeros(()), init=False)
    link: LinkBytes | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.estimate = np.asarray(self.per_component, dtype=float)

    def attach(self, total: Total) -> None:
        """Count bytes on the link, of the one entity that this is the cost of, if it is to count them."""
        if self.count == "link":
            self.link = LinkBytes(total, float(self.smoothing))

    def at(self, moment: Moment) -> Affine:
        self.estimate = np.broadcast_to(self.estimate, moment.shape)
        header, each = (0.0, np.ones(())) if self.counts == "bytes" else (self.per_message, self.estimate)
        if self.link is None:
            return Affine(np.asarray(header), each)
        self.link.look()
        return self.link.cost(header, each)

    def bill(self, amount: Number | Count, nbytes: Number | Count) -> FloatArray:
        """Return what a message of that many components and bytes is charged."""
        if self.link is None:
            return np.asarray(nbytes, dtype=float)
        return np.asarray(self.link.bill(float(amount), float(nbytes)))

    def observe(self, amount: Number | Count, cost: Number) -> None:
        if self.link is not None:
            self.link.settle(float(amount), float(cost))
        k = np.asarray(amount)
        found = np.maximum(0.0, np.asarray(cost, dtype=float) - self.per_message) / np.maximum(k, 1)
        share = np.where(k > 0, self.smoothing, 0.0)
        self.estimate = np.asarray((1.0 - share) * self.estimate + share * found)

    def state(self) -> State:
        link = np.full(LinkBytes.STATE, np.nan) if self.link is None else self.link.state()
        return {"estimate": np.asarray(self.estimate), "link": link}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.estimate = np.asarray(state["estimate"], dtype=float)
        if self.link is not None and np.isfinite(state["link"]).all():  # else it had no meter then
            self.link.restore(np.asarray(state["link"]))
