"""Channels with a memory: fading that is correlated over time, and links that are good or bad for a while.

What is drawn for an iteration depends only on the iteration and the client. A memory that has missed some
iterations catches up with them one by one, so that a deployed client and a resumed run are where the
simulation is, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, Number
from flexfl.costs.available import with_away
from flexfl.costs.base import Cost
from flexfl.costs.linear import Affine
from flexfl.costs.parts import MessageTable, Wrapper, open_cost, scaled
from flexfl.counting import Counts
from flexfl.parameters import CostUnit, PerClientFromZero, PerClientPositive, Rule, above_zero, share
from flexfl.state import State
from flexfl.streams import Moment

_LN2 = math.log(2.0)
_Correlation = Annotated[
    Number,
    Rule("must be in [0, 1)", lambda rho: 0 <= rho < 1, "0 is fading without a memory", per_client=True),
]
_TimeConstant = Annotated[
    float | None,
    Rule("must be > 0 and finite", above_zero, "in iterations, instead of correlation", optional=True),
]
_Chance = Annotated[Number, Rule("must be in (0, 1]", share, "a probability by iteration", per_client=True)]
_Worse = Annotated[
    Number,
    Rule("must be > 0", lambda factor: factor > 0, "inf for an outage, or a factor", per_client=True),
]


@dataclass
class GaussMarkov:
    """Rayleigh fading whose gain is correlated over time: γ = s / (d·log2(1 + |h|²)); s·β a message.

    The complex gain is the Gauss–Markov process h_t = ρ·h_{t−1} + √(1 − ρ²)·w_t with real and imaginary
    parts of w_t ~ N(0, 1). So |h|² ~ χ²₂ in every iteration, as for `fading`, of which only the memory
    differs: |h|² has the autocorrelation ρ^(2m) at lag m. With ρ = 0 the costs are those of `fading`.

    Attributes:
        correlation: ρ, of the gain from one iteration to the next.
        time_constant: τ in iterations instead: ρ = exp(−1/τ).
        per_message: β.
        factor: s scales both parts: 1 for the uplink, 0.2 for a downlink with five times the bandwidth.
        unit: what it is counted in; without one, the paper's abstract cost.
        counts: what k is: "components", or "bytes" or "bits" of the message as it is written, 32 bits for a
            component.
    """

    correlation: _Correlation = 0.9
    time_constant: _TimeConstant = None
    per_message: PerClientFromZero = 0.05
    factor: PerClientPositive = 1.0
    unit: CostUnit = ""
    counts: Counts = "components"
    _gain: FloatArray = field(default_factory=lambda: np.zeros(2), init=False, repr=False)
    _next: int = field(default=0, init=False, repr=False)

    def at(self, moment: Moment) -> Affine:
        rho = math.exp(-1.0 / self.time_constant) if self.time_constant else moment.pick(self.correlation)
        for iteration in range(self._next, moment.iteration + 1):
            drawn = _normal_pair(moment.at(iteration))
            self._gain = drawn if iteration == 0 else rho * self._gain + np.sqrt(1.0 - rho * rho) * drawn
        self._next = max(self._next, moment.iteration + 1)
        capacity = np.log1p(np.square(self._gain).sum(axis=0)) / _LN2
        factor = np.asarray(moment.pick(self.factor), dtype=float)
        return Affine(
            per_message=factor * np.asarray(moment.pick(self.per_message), dtype=float),
            per_component=factor / (moment.dim * capacity),
        )

    def state(self) -> State:
        return {"gain": np.asarray(self._gain), "next": np.array(self._next)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._gain, self._next = np.asarray(state["gain"], dtype=float), int(state["next"])


def _normal_pair(moment: Moment) -> FloatArray:
    """Return two independent N(0, 1) for each entity, (2, ...), by Box and Muller.

    The square of the radius is the χ²₂ that `fading` draws.
    """
    radius = np.sqrt(-2.0 * np.log1p(-moment.uniform("fading")))
    angle = 2.0 * math.pi * moment.uniform("phase")
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


@dataclass
class GilbertElliott(Wrapper):
    """Another cost, which is `worse` times as high while a link is bad; ∞ for an outage.

    Each client's link is good or bad, a Markov chain that begins in its stationary law: it is bad for the
    share p / (p + r) of the time, for 1 / r iterations on average, with the autocorrelation (1 − p − r)^m at
    lag m.

    Attributes:
        to_bad: p, the probability that a good link turns bad from one iteration to the next.
        to_good: r, the probability that a bad link turns good.
        worse: the factor in the bad state; inf for a link that is down.
        cost: of sending in the good state, by its kind or as a table.
    """

    to_bad: _Chance = 0.05
    to_good: _Chance = 0.2
    worse: _Worse = 4.0
    cost: MessageTable = "constant"
    _bad: BoolArray = field(default_factory=lambda: np.zeros((), dtype=bool), init=False, repr=False)
    _next: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._cost = open_cost(self.cost, computing=False)

    def at(self, moment: Moment) -> Cost:
        p, r = moment.pick(self.to_bad), moment.pick(self.to_good)
        for iteration in range(self._next, moment.iteration + 1):
            drawn = moment.at(iteration).uniform("link")
            bad_next = np.where(self._bad, drawn >= r, drawn < p) if iteration else drawn < p / (p + r)
            self._bad = np.asarray(bad_next)
        self._next = max(self._next, moment.iteration + 1)
        cost, worse = self._cost.at(moment), np.asarray(moment.pick(self.worse), dtype=float)
        down = np.isinf(worse)
        factor = np.where(self._bad & ~down, np.where(down, 1.0, worse), 1.0)
        return with_away(scaled(cost, factor), np.asarray(self._bad & down))

    def state(self) -> State:
        return {"bad": np.asarray(self._bad), "next": np.array(self._next)} | super().state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._bad, self._next = np.asarray(state["bad"], dtype=bool), int(state["next"])
        super().restore({name: value for name, value in state.items() if name.startswith("cost.")})
