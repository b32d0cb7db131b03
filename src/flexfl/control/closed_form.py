"""Exact minimisers of P3.1–P3.3 for the costs of Section IV-E.

Legend: V trade-off · Λ, Φ queue lengths (Φ stands for Ψ too) · α per gradient · β per message ·
γ per component · b the accumulated vector (the server's a).
"""

from __future__ import annotations

import numpy as np

from flexfl.arrays import FloatArray, IntArray, Number
from flexfl.compress.base import Magnitudes


def compute_prob(V: Number, Lam: Number, alpha: Number) -> FloatArray:
    """P3.1 with λ = α·q: q = min{1, √(V / (Λ·α))}.

    An empty queue or a free iteration (Λ·α = 0) gives q = 1.
    """
    return np.asarray(np.sqrt(V / np.maximum(np.asarray(Lam) * alpha, V)))


def cut(V: Number, Phi: Number, gamma: Number) -> FloatArray:
    """√(Φ·γ / V): a component is worth its cost if its magnitude is above this."""
    return np.asarray(np.sqrt(np.asarray(Phi, dtype=np.float64) * gamma / V))


def num_sent(V: Number, Phi: Number, beta: Number, gamma: Number, magnitudes: Magnitudes) -> IntArray:
    """P3.2 and P3.3 with φ = β + γ·k for k > 0: how many of the largest components to send.

    One more component changes the objective by Φ·γ − V·b_j², so the best non-empty set is
    k = #{j : V·b_j² > Φ·γ}, a threshold and not a sort. It is sent if that beats sending
    nothing: V·Σ b_j² > Φ·(β + γ·k), the sum over the set; or, in other words, if the excess
    Σ (b_j² − Φ·γ/V) over the set is above Φ·β/V.

    Deviation: the paper sends j* components, where j* is the first that does *not* help
    (Φ·γ − V·b_j² ≥ 0). The exact minimiser sends k = j* − 1; brute force over every k in
    the tests settles it.
    """
    Phi = np.asarray(Phi, dtype=np.float64)
    k, energy = magnitudes.above(cut(V, Phi, gamma), enough=Phi * beta / V)
    worth_it = V * energy > Phi * (beta + gamma * k)
    return np.where(worth_it, k, 0)
