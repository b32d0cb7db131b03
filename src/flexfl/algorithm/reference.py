"""The oracle: Algorithms 1 and 2 line by line, slow and obvious, in float64.

Every faster path is compared with this loop. It shares the rules (`control`) and the random
streams with the engine, and nothing else: selection is a full stable sort, clients are a
Python loop, vectors are dense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from flexfl.algorithm.server import equal_weights
from flexfl.arrays import BoolArray, FloatArray, IntArray, Number, spread
from flexfl.compress.topk import DenseMagnitudes
from flexfl.control.policy import Policy
from flexfl.costs.base import CostModel
from flexfl.streams import Streams

Gradient = Callable[[int, FloatArray, int], FloatArray]
"""g_n(x): client, parameters and how many minibatches that client has used → (D,)."""


@dataclass(frozen=True)
class Step:
    """All that happened in one iteration; vectors are those after it."""

    iteration: int
    params: FloatArray  # x_{t+1}, (D,)
    server_residual: FloatArray  # r_{t+1}, (D,)
    client_residual: FloatArray  # e_{t+1}, (N, D)
    compute_prob: FloatArray  # q, (N,)
    computed: BoolArray  # 𝟙, (N,)
    uplink_sent: IntArray  # k of each client, (N,)
    downlink_sent: int  # k of the server
    compute_cost: FloatArray  # λ, (N,)
    uplink_cost: FloatArray  # φ, (N,)
    downlink_cost: float  # ψ
    applied: FloatArray  # Σ w·(−η·𝟙/q)·g, (D,)


def reference(
    params: FloatArray,
    gradient: Gradient,
    *,
    clients: int,
    policy: Policy,
    costs: dict[str, CostModel],
    streams: Streams,
    learning_rate: float,
    iterations: int,
    weights: Number | None = None,
    dtype: DTypeLike = np.float64,
) -> Iterator[Step]:
    """Run Algorithm 1 under the decisions of `policy`, one iteration at a time.

    costs has a model for "compute", "uplink" and "downlink".
    """
    N, D = clients, len(params)
    w = equal_weights(N) if weights is None else np.asarray(weights)
    x: FloatArray = np.array(params, dtype=dtype)
    r: FloatArray = np.zeros(D, dtype=dtype)  # line 1
    e: FloatArray = np.zeros((N, D), dtype=dtype)  # line 2
    used = [0] * N

    for t in range(iterations):  # line 3
        at_clients = {knob: streams.moment(knob, t, D, (N,)) for knob in ("compute", "uplink")}
        at_server = streams.moment("downlink", t, D)

        lam = costs["compute"].at(at_clients["compute"])
        q = policy.compute.decide(lam, at_clients["compute"])  # P3.1
        lam_spent = _charge(policy.compute, lam(q), (N,))  # (16)

        u01 = at_clients["compute"].uniform("bernoulli")
        computed = np.zeros(N, dtype=np.bool_)
        applied: FloatArray = np.zeros(D)
        b = e.copy()
        for n in range(N):
            computed[n] = u01[n] < q[n]  # line 5
            if computed[n]:
                step = -learning_rate / q[n] * gradient(n, x, used[n])
                used[n] += 1
                b[n] = e[n] + step  # line 6
                applied = applied + w[n] * step

        phi = costs["uplink"].at(at_clients["uplink"])
        k = policy.uplink.decide(phi, DenseMagnitudes(b), at_clients["uplink"])  # P3.2
        phi_spent = _charge(policy.uplink, phi(k), (N,))  # (17)
        v = np.zeros((N, D), dtype=dtype)
        for n in range(N):
            v[n] = _largest(b[n], int(k[n]))
            e[n] = b[n] - v[n]  # line 7

        a = r.copy()  # line 10
        for n in range(N):
            a = a + w[n] * v[n]
        a = a.astype(dtype)

        psi = costs["downlink"].at(at_server)
        k_server = int(policy.downlink.decide(psi, DenseMagnitudes(a), at_server))  # P3.3
        psi_spent = _charge(policy.downlink, psi(k_server), ())  # (18)
        u = _largest(a, k_server)
        r = a - u  # line 11
        x = x + u  # line 14

        yield Step(
            iteration=t,
            params=x.copy(),
            server_residual=r.copy(),
            client_residual=e.copy(),
            compute_prob=q,
            computed=computed,
            uplink_sent=k,
            downlink_sent=k_server,
            compute_cost=lam_spent,
            uplink_cost=phi_spent,
            downlink_cost=float(psi_spent),
            applied=applied,
        )


def _largest(vector: FloatArray, k: int) -> FloatArray:
    """The k components of largest magnitude, lowest index first among equals; by a full sort."""
    order = np.argsort(-np.abs(vector), kind="stable")[:k]
    message = np.zeros_like(vector)
    message[order] = vector[order]
    return message


def _charge(rule: Any, spent: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    spent = spread(spent, shape)
    if rule.queue is not None:
        rule.queue.charge(spent)
    return spent
