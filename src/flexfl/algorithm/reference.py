"""The oracle: Algorithms 1 and 2 line by line, slow and obvious, in float64.

Every faster path is compared with this loop. It shares the knobs (`control`) and the random streams with
the engine, and nothing else: messages go by the plain path, clients are a Python loop, vectors are dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from flexfl.algorithm.steps import equal_weights
from flexfl.arrays import FloatArray, Number
from flexfl.compress.message import dense_rows
from flexfl.control.joint import JointQueues
from flexfl.control.knobs import Computing, Knob, Sender, Sending
from flexfl.control.setup import Setup
from flexfl.control.timing import ON_TIME, Arrivals, VirtualClock
from flexfl.learning_rate import CAP, FORGET, PRIOR, SHARE, Rate, following
from flexfl.local import ClientWork
from flexfl.streams import Entities

Gradient = Callable[[int, FloatArray, int], FloatArray]
"""g_n(x): client, parameters and how many minibatches that client has used → (D,)."""


@dataclass(frozen=True)
class Step:
    """All that happened in one iteration; vectors are those after it."""

    iteration: int
    params: FloatArray  # x_{t+1}, (D,)
    server_residual: FloatArray  # r_{t+1}, (D,)
    client_residual: FloatArray  # e_{t+1}, (N, D)
    compute: Computing
    uplink: Sending
    downlink: Sending
    applied: FloatArray  # Σ w·(𝟙/q)·Δ, (D,); the paper's Δ is −η·g
    clock: float = math.nan  # when it ended, in seconds
    in_flight: FloatArray | None = None  # Σ w·v of messages that have not arrived, (D,)
    learning_rate: float = math.nan  # η_t
    average: FloatArray | None = None  # x̄_{t+1}, (D,)


def _at(gradient: Gradient, client: int, used: int) -> Callable[[FloatArray, int], FloatArray]:
    """Return the gradients of a client at y, on minibatch k of this iteration."""
    return lambda y, k: gradient(client, y, used + k)


class _Flying:
    """Messages that missed a deadline and have not arrived yet, by client."""

    def __init__(self, weights: FloatArray, dim: int) -> None:
        self._w, self._dim = weights, dim
        self._messages: dict[int, FloatArray] = {}

    def exchange(self, arrivals: Arrivals, v: FloatArray) -> FloatArray:
        """Take late messages out of v, (N, D), and return w·v of those that have landed, (D,)."""
        landed = [self._w[n] * self._messages.pop(n) for n in arrivals.landed.tolist()]
        for n in arrivals.late.tolist():
            self._messages[n], v[n] = v[n].copy(), 0.0
        return sum(landed, start=np.zeros(self._dim))

    def total(self) -> FloatArray:
        """Return Σ w·v of what is in flight, (D,)."""
        return sum((self._w[n] * v for n, v in self._messages.items()), start=np.zeros(self._dim))


def _learning_rate(given: Rate, sent: list[float]) -> float:
    """Return η, or min(0.1, 0.85·ρ_t) with ρ_t = Σ_s 0.99^(t−1−s)·m_s / Σ_s 0.99^(t−1−s).

    m are the messages per client and iteration so far; ten iterations with 0.1/0.85 come before the first.
    """
    if given != "auto":
        return given
    count = [FORGET**age for age in reversed(range(len(sent)))]  # the newest counts 1
    prior = PRIOR * FORGET ** len(sent)
    total = prior * CAP / SHARE + sum(c * m for c, m in zip(count, sent, strict=True))
    return following(total / (prior + sum(count)))


def _knobs(setup: Setup, N: int, D: int) -> tuple[Knob, Sender, Sender, JointQueues]:
    """Return what decides on computing, uplink and downlink, and the queues of joint budgets."""
    everyone, server, joint = Entities.all_clients(N), Entities.the_server(), setup.joint_queues()
    uplink, downlink = setup.sender("uplink", everyone, D, joint), setup.sender("downlink", server, D, joint)
    return setup.knob(everyone, D, joint), uplink, downlink, joint


def reference(
    params: FloatArray,
    gradient: Gradient,
    *,
    clients: int,
    setup: Setup,
    learning_rate: Rate,
    iterations: int,
    weights: Number | None = None,
    dtype: DTypeLike = np.float64,
) -> Iterator[Step]:
    """Run Algorithm 1 under the decisions of Algorithm 2, one iteration at a time.

    Args:
        params: x_0, (D,).
        gradient: the clients' gradients.
        clients: N.
        setup: policy, costs, compressors and budgets, local work, and the schedule of the learning rate.
        learning_rate: η, or "auto": min(0.1, 0.85·ρ), ρ being the messages per client and iteration.
        iterations: T.
        weights: w, (N,), with sum 1; 1/N if left out.
        dtype: of all vectors.
    """
    N, D = clients, len(params)
    w = equal_weights(N) if weights is None else np.asarray(weights)
    setup = setup.weighted(w).started(N, D)
    clock = setup.clock if isinstance(setup.clock, VirtualClock) else None
    compute, uplink, downlink, joint = _knobs(setup, N, D)
    x: FloatArray = np.array(params, dtype=dtype)
    r, e = (np.zeros(shape, dtype=dtype) for shape in (D, (N, D)))  # lines 1–2
    flying, work = _Flying(w, D), [ClientWork(setup.local) for _ in range(N)]
    used, sent, x_bar = [0] * N, list[float](), x  # minibatches by client, messages per client by iteration

    for t in range(iterations):  # line 3
        if setup.clock.seconds >= setup.duration:
            return
        away = None if clock is None else clock.begin(t)
        eta = _learning_rate(learning_rate, sent) * setup.factor(t)
        computing = compute.decide(t, away)  # P3.1, (16), line 5
        b, applied = e.copy(), np.zeros(D)
        for n in np.flatnonzero(computing.computed).tolist():
            delta = work[n].change(_at(gradient, n, used[n]), x, eta)  # the paper's is −η·g
            b[n] = e[n] + delta / computing.prob[n]  # line 6
            applied = applied + w[n] * delta / computing.prob[n]
            used[n] += setup.local.gradients

        messages, e, up = uplink.send(t, b, away)  # P3.2, (17), lines 7–8
        v = dense_rows(messages)
        arrivals = ON_TIME if clock is None else clock.wait(computing, up)
        a = (r + flying.exchange(arrivals, v) + w @ v).astype(dtype)  # line 10
        [message], r, down = downlink.send(t, a)  # P3.3, (18), lines 11–12
        x = x + message.dense()  # line 14
        sent.append(np.count_nonzero(up.components) / N)
        x_bar = x_bar + 10 / (t + 10) * (x - x_bar)
        joint.close()
        if clock is not None:
            clock.advance(down)

        rest = setup.clock.seconds, flying.total(), eta, x_bar
        yield Step(t, x.copy(), r.copy(), e.copy(), computing, up, down, applied, *rest)
