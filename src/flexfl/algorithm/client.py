"""Algorithm 1, the client's lines 5–8, for one client (D,) or all of them (N, D)."""

from __future__ import annotations

import numpy as np

from flexfl.arrays import BoolArray, FloatArray, Number


def computes(compute_prob: Number, uniform: Number) -> BoolArray:
    """Line 5: 𝟙 ~ Bernoulli(q), from a uniform number in (0, 1)."""
    return np.asarray(uniform) < np.asarray(compute_prob)


def step_size(learning_rate: float, compute_prob: Number, computed: BoolArray) -> FloatArray:
    """−η·𝟙/q, the factor of the gradient in line 6; unbiased since E[𝟙/q] = 1."""
    return np.where(computed, -learning_rate / np.asarray(compute_prob, dtype=np.float64), 0.0)


def accumulate(client_residual: FloatArray, grads: FloatArray, step: Number) -> FloatArray:
    """Line 6: b = e − (η·𝟙/q)·g, with step from `step_size`, shape (...)."""
    return np.asarray(client_residual + np.asarray(step)[..., None] * grads)


def keep(accumulated: FloatArray, message: FloatArray) -> FloatArray:
    """Line 7 (and 11): what is not sent stays, e' = b − v; exact, since v_j is b_j or 0."""
    return np.asarray(accumulated - message)
