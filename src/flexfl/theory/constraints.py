"""Theorem 2: how far an average cost can end above its budget; and V, W or T for a violation that is allowed.

Legend: V trade-off · W initial queue · T iterations · D bounds 1/q, ‖b‖² and ‖a‖² · B: costs and budgets are
at most √(2B).

The paper's queues have the floor 0. The theorem holds for any floor ≤ W, too: where the floor takes hold the
queue does not grow, so that its drift is at most 0 and the paper's bound VD + B of the drift stays true; and
Q_{t+1} ≥ Q_t + cost − budget holds as before.
"""

from __future__ import annotations

import numpy as np

from flexfl.arrays import FloatArray, Number


def violation_bound(V: Number, W: Number, T: Number, D: Number, B: Number) -> FloatArray:
    """Return √(W²/T² + (2VD + 2B)/T) − W/T, in the unit of the cost.

    It is computed as c / (√(W² + cT) + W) with c = 2VD + 2B, which is the same and loses no digits to a
    large W.

    >>> round(float(violation_bound(V=0.02, W=1.0, T=100, D=4.0, B=0.5)), 6)
    0.098167
    """
    V, W, T, D, B = (np.asarray(given, dtype=np.float64) for given in (V, W, T, D, B))
    c = 2.0 * V * D + 2.0 * B
    with np.errstate(invalid="ignore"):  # c = W = 0: nothing is spent
        return np.asarray(np.where(c > 0, c / (np.sqrt(W**2 + c * T) + W), 0.0))


def initial_queue_for(violation: Number, *, V: Number, T: Number, D: Number, B: Number) -> FloatArray:
    """Return the smallest W for which Theorem 2 allows at most ν: W = (2VD + 2B − ν²T) / (2ν), or 0.

    From √(W² + cT) = νT + W by squaring, with c = 2VD + 2B.
    """
    nu, c = np.asarray(violation), 2.0 * np.asarray(V) * D + 2.0 * np.asarray(B)
    return np.asarray(np.maximum(0.0, (c - nu**2 * T) / (2.0 * nu)))


def iterations_for(violation: Number, *, V: Number, W: Number, D: Number, B: Number) -> FloatArray:
    """Return the smallest T for which Theorem 2 allows at most ν: T = (2VD + 2B − 2νW) / ν², or 0."""
    nu, c = np.asarray(violation), 2.0 * np.asarray(V) * D + 2.0 * np.asarray(B)
    return np.asarray(np.maximum(0.0, (c - 2.0 * nu * W) / nu**2))


def tradeoff_for(violation: Number, *, W: Number, T: Number, D: Number, B: Number) -> FloatArray:
    """Return the largest V for which Theorem 2 allows at most ν: V = (ν²T + 2νW − 2B) / (2D).

    Not above 0 where no V will do: then T or W must be larger.
    """
    nu = np.asarray(violation)
    return np.asarray((nu**2 * T + 2.0 * nu * W - 2.0 * np.asarray(B)) / (2.0 * np.asarray(D)))
