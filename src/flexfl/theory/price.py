"""The bound of the log price (`policy = "price"`): how far spending ends from its budget after T iterations.

The price moves by  ln λ' = max{ln λ_min, ln λ + κ·(c_t − φ̃_t)/φ̃}  with the cost c_t, the budget φ̃ of an
iteration and the share φ̃_t of this one (φ̃ itself, unless the horizon is known).

**What was spent.** Each step moves ln λ by at least κ·(c_t − φ̃_t)/φ̃, and by just that unless the floor
holds it. Summed over T iterations,

    Σ (c_t − φ̃_t) / φ̃ ≤ ln(λ_T/λ_0) / κ,        with equality if the floor was never met.

With φ̃_t = φ̃ the left side is T times the relative violation, so it is at most ln(λ_T/λ_0)/(κT): sign
included, and whatever was decided.

**How high the price of sending gets.** P3.2 with a price reads min ‖b − v‖² + λ·φ(v), and v = 0 costs
nothing. So a message of cost φ is sent only if λ·φ ≤ ‖b‖² − ‖b − v‖² ≤ D. The price rises only after a cost
φ > φ̃, hence from λ ≤ D/φ, and to at most (D/φ)·exp(κ(φ/φ̃ − 1)). The logarithm of that is convex in φ: on
(φ̃, φ_max] it is largest at an end. A price that never rises to more than a number exceeds it only if it
began there:

    λ_T ≤ max{λ_0, D/φ̃, (D/φ_max)·exp(κ(φ_max/φ̃ − 1))}

(and if no message costs less than φ_min > φ̃, with (D/φ_min)·exp(κ(φ_min/φ̃ − 1)) for D/φ̃).

**How high the price of computing gets.** With λ(q) = αq, P3.1 with a price gives q = min{1, 1/√(μα)} and the
cost c = min{α, √(α/μ)}, which is above φ̃ only while μ < α/φ̃². From there μ rises to at most
(α/c²)·exp(κ(c/φ̃ − 1)) with c in (φ̃, α]: by its logarithm convex in c again, so at most
max{α/φ̃², (1/α)·exp(κ(α/φ̃ − 1))}. Among the α > φ̃ the first is largest at α_max, the second at an end, and
at the end φ̃ it is 1/φ̃ ≤ α_max/φ̃²:

    μ_T ≤ max{μ_0, α_max/φ̃², (1/α_max)·exp(κ(α_max/φ̃ − 1))}

For α_max ≤ φ̃ no cost is above the budget, and μ never rises.

So the relative violation is at most ln⁺(bound of λ_T / λ_0)/(κT): it falls like 1/T, where Theorem 2's falls
like 1/√T; and no unit is left in it, since φ/φ̃ and λ·φ/D have none.
"""

from __future__ import annotations

import numpy as np

from flexfl.arrays import FloatArray, Number


def price_violation(first: Number, last: Number, *, step: Number, iterations: Number) -> FloatArray:
    """Return ln(λ_T/λ_0) / (κT), the relative violation after T iterations with a constant budget.

    It is exact if the price never met its floor, and else an upper bound.

    Args:
        first: λ_0.
        last: λ_T.
        step: κ.
        iterations: T.

    >>> round(float(price_violation(1.0, 2.0, step=0.03, iterations=1000)), 5)
    0.0231
    """
    return np.asarray((np.log(last) - np.log(first)) / (np.asarray(step) * iterations))


def highest_send_price(
    first: Number, *, energy: Number, budget: Number, largest: Number, step: Number, smallest: Number = 0.0
) -> FloatArray:
    """Return what the price of sending never exceeds: max{λ_0, D/φ̃, (D/φ_max)·exp(κ(φ_max/φ̃ − 1))}.

    Args:
        first: λ_0.
        energy: D, at least ‖b‖² of every iteration.
        budget: φ̃.
        largest: φ_max, at least the cost of every message.
        step: κ.
        smallest: φ_min, at most the cost of every message.
    """
    D, phi_bar, phi_max = (np.asarray(given, dtype=np.float64) for given in (energy, budget, largest))
    least = np.maximum(phi_bar, smallest)

    def after(phi: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):  # one message for the budget of thousands: no bound
            return np.asarray(D / phi * np.exp(step * (phi / phi_bar - 1.0)))

    rises = np.maximum(after(least), after(np.maximum(phi_max, least)))
    return np.asarray(np.where(phi_max > phi_bar, np.maximum(first, rises), first))


def highest_compute_price(first: Number, *, largest: Number, budget: Number, step: Number) -> FloatArray:
    """Return what the price of computing never exceeds: max{μ_0, α_max/φ̃², exp(κ(α_max/φ̃ − 1))/α_max}.

    Args:
        first: μ_0.
        largest: α_max, at least the cost of every gradient.
        budget: φ̃.
        step: κ.
    """
    alpha, phi_bar = (np.asarray(given, dtype=np.float64) for given in (largest, budget))
    with np.errstate(over="ignore"):
        rises = np.maximum(alpha / phi_bar**2, np.exp(step * (alpha / phi_bar - 1.0)) / alpha)
    return np.asarray(np.where(alpha > phi_bar, np.maximum(first, rises), first))


def price_violation_bound(first: Number, highest: Number, *, step: Number, iterations: Number) -> FloatArray:
    """Return what the relative violation is at most, before the run: ln(highest/λ_0) / (κT), at least 0."""
    return price_violation(first, np.maximum(first, highest), step=step, iterations=iterations)
