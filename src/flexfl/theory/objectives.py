"""Theorem 3: how far from the best the decisions of Algorithm 2 can be.

Legend: V trade-off · W initial queue · T iterations · D bounds ‖b‖² and ‖a‖² · B: costs and budgets are at
most √(2B) · Φ the queue that a decision was made against (Ψ of the server).
"""

from __future__ import annotations

import numpy as np

from flexfl.arrays import FloatArray, Number


def inverse_prob_bound(optimum: Number, *, V: Number, W: Number, T: Number, B: Number) -> FloatArray:
    """Return OPT_q + B/V + W²/(2VT), which bounds the average of E[1/q] of a client.

    It holds in expectation for costs that are independent from one iteration to the next, and on every
    path for costs that never change. `optimum` may be that of the statistics, or the mean of the optima on
    realised costs (`theory.offline`), which is never smaller: each realised optimum is a maximum over μ of
    Lagrangians, and the mean of maxima is at least the maximum of means.
    """
    opt, V, W = (np.asarray(given, dtype=np.float64) for given in (optimum, V, W))
    return np.asarray(opt + B / V + W**2 / (2.0 * V * T))


def kept_bound(*, V: Number, D: Number, B: Number, queue: Number) -> FloatArray:
    """Return min{D, Φ·√(2B) / V}, which bounds ‖b − v‖² (and ‖a − u‖² with Ψ) in every iteration."""
    return np.minimum(D, np.asarray(queue) * np.sqrt(2.0 * np.asarray(B)) / V)
