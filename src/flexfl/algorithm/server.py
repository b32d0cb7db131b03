"""Algorithm 1, the server's lines 10–12 and the update of line 14."""

from __future__ import annotations

import numpy as np

from flexfl.algorithm.client import keep
from flexfl.arrays import FloatArray, Number

__all__ = ["aggregate", "equal_weights", "keep", "update"]


def equal_weights(clients: int) -> FloatArray:
    """w = 1/N: the paper's plain mean."""
    return np.full(clients, 1.0 / clients)


def aggregate(server_residual: FloatArray, messages: FloatArray, weights: Number) -> FloatArray:
    """Line 10: a = r + Σ w·v over **all** N clients; who sent nothing counts as v = 0.

    messages is (N, D), weights (N,) with sum 1. The paper has w = 1/N and lets F_n carry any
    weighting; weights here do the same without rescaling a client's loss.
    """
    return np.asarray(server_residual + np.asarray(weights) @ messages)


def update(params: FloatArray, message: FloatArray) -> FloatArray:
    """Line 14: x' = x + u, the same at every client."""
    return np.asarray(params + message)
