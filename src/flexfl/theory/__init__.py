"""Theorems 1–3 and the bound of the price as functions; the offline optimum; what follows for V, W and η."""

from flexfl.theory.constraints import (
    initial_queue_for,
    iterations_for,
    tradeoff_for,
    violation_bound,
)
from flexfl.theory.convergence import (
    Constants,
    Convergence,
    convergence_bound,
    convergence_over_time,
    largest_learning_rate,
)
from flexfl.theory.objectives import inverse_prob_bound, kept_bound
from flexfl.theory.offline import OfflinePlan, offline_optimum, offline_probs
from flexfl.theory.price import (
    highest_compute_price,
    highest_send_price,
    price_violation,
    price_violation_bound,
)

__all__ = [
    "Constants",
    "Convergence",
    "OfflinePlan",
    "convergence_bound",
    "convergence_over_time",
    "highest_compute_price",
    "highest_send_price",
    "initial_queue_for",
    "inverse_prob_bound",
    "iterations_for",
    "kept_bound",
    "largest_learning_rate",
    "offline_optimum",
    "offline_probs",
    "price_violation",
    "price_violation_bound",
    "tradeoff_for",
    "violation_bound",
]
