"""Theorem 1 and Corollary 1: what the average of ‖∇f(x_t)‖² is at most, term by term.

Legend: L smoothness of every F_n · σ² variance of a minibatch gradient · ε² how far ∇F_n is from ∇f ·
η learning rate · T iterations · r, e residuals of server and clients · q probability of computing ·
p ≥ (1/N)·Σ 1/q in every iteration.

The paper's f is the plain mean, and weights are part of F_n: for f = Σ w·F these are the constants of
N·w_n·F_n, and the residual of a client is N·w_n·e_n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, Number


@dataclass(frozen=True)
class Constants:
    """The constants of Assumption 1, and how far the start is from the best.

    Attributes:
        smoothness: L, for every client.
        variance: σ².
        divergence: ε².
        gap: f(x_0) − f*.
    """

    smoothness: float
    variance: float
    divergence: float
    gap: float


@dataclass(frozen=True)
class Convergence:
    """The four terms of Theorem 1; numbers, or arrays over T.

    Attributes:
        start: 4·(f(x_0) − f*) / (ηT), which time forgets.
        server_residual: 4·L²·mean ‖r‖², what the server has kept back.
        client_residual: 4·L²·mean ‖e‖², what the clients have kept back.
        computing: 4·η·L·(ε² + σ²)·mean 1/q, how rarely and how noisily clients compute.
    """

    start: Number
    server_residual: Number
    client_residual: Number
    computing: Number

    @property
    def total(self) -> Number:
        """The bound of (1/T)·Σ E‖∇f(x_t)‖²."""
        return self.start + self.server_residual + self.client_residual + self.computing


def largest_learning_rate(smoothness: Number, inverse_prob: Number = 1.0) -> Number:
    """Return 1 / (4·L·p), up to which Theorem 1 holds.

    >>> largest_learning_rate(5.0, inverse_prob=2.0)
    0.025
    """
    return 1.0 / (4.0 * smoothness * inverse_prob)


def convergence_bound(
    constants: Constants,
    *,
    learning_rate: float,
    iterations: Number,
    server_residual: Number,
    client_residual: Number,
    inverse_prob: Number,
) -> Convergence:
    """Return the right-hand side of Theorem 1.

    With ‖r_t‖² and ‖e_t‖² of t = 0, …, T − 1 it is Theorem 1; with ‖a_t − u_t‖² = ‖r_{t+1}‖² and
    ‖b_t − v_t‖² = ‖e_{t+1}‖² in their place it is Corollary 1, which is never smaller.

    Args:
        constants: L, σ², ε² and f(x_0) − f*.
        learning_rate: η, at most `largest_learning_rate`.
        iterations: T.
        server_residual: the mean of ‖r‖² over iterations.
        client_residual: the mean of ‖e‖² over iterations and clients.
        inverse_prob: the mean of 1/q over iterations and clients.

    >>> convergence_bound(Constants(1.0, 0.5, 0.5, 3.0), learning_rate=0.1, iterations=100,
    ...                   server_residual=0.0, client_residual=0.01, inverse_prob=2.0).total
    2.04
    """
    L, eta, c = constants.smoothness, learning_rate, constants
    return Convergence(
        start=4.0 * c.gap / (eta * iterations),
        server_residual=4.0 * L**2 * server_residual,
        client_residual=4.0 * L**2 * client_residual,
        computing=4.0 * eta * L * (c.divergence + c.variance) * inverse_prob,
    )


def convergence_over_time(
    constants: Constants,
    *,
    learning_rate: float,
    server_kept: FloatArray,
    client_kept: FloatArray,
    inverse_prob: FloatArray,
) -> Convergence:
    """Return Theorem 1 for every T from 1 on, from what a run has recorded.

    Args:
        constants: L, σ², ε² and f(x_0) − f*.
        learning_rate: η.
        server_kept: ‖a_t − u_t‖² = ‖r_{t+1}‖², (T,).
        client_kept: the mean of ‖b_t − v_t‖² = ‖e_{t+1}‖² over clients, (T,).
        inverse_prob: the mean of 1/q over clients, (T,).
    """
    done = np.arange(1.0, len(inverse_prob) + 1)
    r, e = (np.concatenate([[0.0], kept[:-1]]) for kept in (server_kept, client_kept))  # r_0 = e_0 = 0
    return convergence_bound(
        constants,
        learning_rate=learning_rate,
        iterations=done,
        server_residual=np.cumsum(r) / done,
        client_residual=np.cumsum(e) / done,
        inverse_prob=np.cumsum(inverse_prob) / done,
    )
