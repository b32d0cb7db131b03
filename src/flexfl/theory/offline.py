"""OPT_q of P2.1: the best that any plan with full knowledge of the costs could reach, for one budget.

    min (1/T)·Σ 1/q_t    with  (1/T)·Σ λ_t(q_t) ≤ λ̃  and  0 < q_t ≤ 1

It is what Theorem 3 compares with. A budget that clients share is one such problem over all their iterations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.errors import Fault, InputError

_STEPS = 200
"""Bisections of the multiplier: the last interval is smaller than a rounding."""


@dataclass(frozen=True, eq=False)
class OfflinePlan:
    """A plan that knows all costs.

    Attributes:
        probs: q, (T,).
        value: (1/T)·Σ 1/q, which is OPT_q.
        price: μ, the multiplier: by how much OPT_q falls for one more unit of budget.
    """

    probs: FloatArray
    value: float
    price: float


def offline_probs(alpha: FloatArray, budget: float) -> OfflinePlan:
    """Solve P2.1 for λ_t(q) = α_t·q, exactly.

    The Lagrangian 1/q + μ·α·q is convex and gives q = min{1, 1/√(μα)}: iterations dearer than 1/μ are
    thinned out, the others are used. With the m dearest thinned, the budget says
    1/√μ = (Tλ̃ − Σ_cheap α) / Σ_dear √α, and the right m is the one whose 1/μ parts dear from cheap: the costs
    need sorting once.

    Args:
        alpha: α_t ≥ 0, (T,).
        budget: λ̃ > 0.

    Raises:
        InputError: costs are negative or not finite, or the budget is not above 0.

    >>> offline_probs(np.array([1.0, 1.0, 4.0]), budget=1.0).probs
    array([0.75 , 0.75 , 0.375])
    """
    costs = _checked(alpha, budget)
    total = budget * len(costs)
    if costs.sum() <= total:
        return OfflinePlan(np.ones(len(costs)), 1.0, 0.0)
    dearest = np.sort(costs)[::-1]
    roots = np.cumsum(np.sqrt(dearest))  # Σ √α of the m dearest, m = 1, …, T
    cheap = np.concatenate([np.cumsum(dearest[::-1])[::-1][1:], [0.0]])  # Σ α of the others
    scale = (total - cheap) / roots  # 1/√μ if just the m dearest are thinned
    # Scale² lies between the m-th and the next dearest cost: the first m for which the next is not dearer.
    following = np.concatenate([dearest[1:], [0.0]])
    m = int(np.argmax((scale > 0) & (scale**2 >= following * (1 - 1e-12))))
    with np.errstate(divide="ignore"):
        q = np.minimum(1.0, np.where(costs > 0, scale[m] / np.sqrt(costs), 1.0))
    return OfflinePlan(q, float(np.mean(1.0 / q)), float(scale[m] ** -2))


def offline_optimum(costs: FloatArray, probs: FloatArray, budget: float) -> float:
    """Return OPT_q over randomised plans that choose q_t from a grid, for any cost.

    A plan may draw lots among the grid's q in each iteration, which makes the problem a linear one; its
    optimum is max_μ (1/T)·Σ min_q {1/q + μ·λ_t(q)} − μ·λ̃, concave in μ.

    Args:
        costs: λ_t(q), (T, G).
        probs: the grid of q in (0, 1], (G,).
        budget: λ̃.

    Returns:
        The optimum; ∞ if even the cheapest choice exceeds the budget.
    """
    q, table = np.asarray(probs, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    _checked(table.reshape(-1), budget)
    if np.mean(table.min(axis=1)) > budget:
        return math.inf
    if np.mean(table[:, np.argmax(q)]) <= budget:
        return float(1.0 / q.max())

    def dual(mu: float) -> tuple[float, float]:
        objective = 1.0 / q + mu * table
        chosen = objective.argmin(axis=1)
        spent = float(np.mean(np.take_along_axis(table, chosen[:, None], axis=1)))
        return float(np.mean(objective.min(axis=1))) - mu * budget, spent - budget

    low, high = 0.0, 1.0 / budget
    while dual(high)[1] > 0 and high < 1e300:
        low, high = high, 2.0 * high
    for _ in range(_STEPS):  # the slope of the dual is spent − budget, and falls
        middle = 0.5 * (low + high)
        low, high = (middle, high) if dual(middle)[1] > 0 else (low, middle)
    return max(dual(low)[0], dual(high)[0])


def _checked(costs: FloatArray, budget: float) -> FloatArray:
    costs = np.asarray(costs, dtype=np.float64)
    faults = []
    if not costs.size or not (costs.min() >= 0 and costs.max() < math.inf):
        wrong = costs[~((costs >= 0) & np.isfinite(costs))][:1].tolist() or "none"
        faults.append(Fault("costs", "must be finite and ≥ 0", wrong, "correct the cost model"))
    if not 0 < budget < math.inf:
        faults.append(Fault("budget", "must be > 0 and finite", budget, "a plan without a limit has q = 1"))
    if faults:
        raise InputError(faults, "the offline problem")
    return costs
