"""Algorithm 1 as pure steps, for one client (D,) or all of them (N, D)."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, Number


def step_size(learning_rate: float, compute_prob: Number, computed: BoolArray) -> FloatArray:
    """Return −η·𝟙/q, the factor of the gradient in line 6; unbiased since E[𝟙/q] = 1."""
    return np.where(computed, -learning_rate / np.asarray(compute_prob, dtype=np.float64), 0.0)


def accumulate(client_residual: FloatArray, grads: FloatArray, step: Number) -> FloatArray:
    """Return b = e − (η·𝟙/q)·g (line 6), with step from `step_size`, shape (...)."""
    return np.asarray(client_residual + np.asarray(step)[..., None] * grads)


def equal_weights(clients: int) -> FloatArray:
    """Return w = 1/N: the paper's plain mean."""
    return np.full(clients, 1.0 / clients)
