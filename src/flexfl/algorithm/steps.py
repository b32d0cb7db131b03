"""Algorithm 1 as pure steps, for one client (D,) or all of them (N, D)."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, Number


def change_factor(compute_prob: Number, computed: BoolArray) -> FloatArray:
    """Return 𝟙/q, the factor of a client's change in line 6; unbiased since E[𝟙/q] = 1."""
    return np.where(computed, 1.0 / np.asarray(compute_prob, dtype=np.float64), 0.0)


def accumulate(client_residual: FloatArray, change: FloatArray, factor: Number) -> FloatArray:
    """Return b = e + (𝟙/q)·Δ (line 6), with the factor from `change_factor`, shape (...).

    The paper's Δ is −η·g; see `flexfl.local`.
    """
    return np.asarray(client_residual + np.asarray(factor)[..., None] * change)


def equal_weights(clients: int) -> FloatArray:
    """Return w = 1/N: the paper's plain mean."""
    return np.full(clients, 1.0 / clients)
