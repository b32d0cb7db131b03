"""Algorithm 1 as pure steps, for one client (D,) or all of them (N, D)."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, Number

RECENT = 10.0
"""How much the averaged model leans to recent iterations."""


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


def next_average(average: Any, params: Any, t: int) -> Any:
    """Return x̄ ← x̄ + 10/(t + 10)·(x − x̄) after iteration t, which has led to x; the first sets x̄ = x.

    A weighted mean of all models, in which x of iteration s counts in proportion to about s⁹: the last tenth
    of a run makes most of it. Nothing is sent for it: who knows every x knows x̄. For arrays of NumPy and
    of torch alike.

    >>> next_average(np.array([5.0]), np.array([1.0]), 0), next_average(np.array([1.0]), np.array([3.0]), 10)
    (array([1.]), array([2.]))
    """
    if t == 0:
        return 1 * params  # to the last bit
    share = RECENT / (t + RECENT)
    return average + share * (params - average)
