"""Names of the recorded metrics, shared by the engine, the store, exports and reports.

Costs are per iteration; budgets limit their averages over iterations. `compute_cost` is the
expected cost λ(q) that the queue is charged, `compute_spent` is the realised cost: λ(1) if the
client computed, λ(0) if not. Queues are the lengths that the iteration's decisions were based
on. Objectives are the terms of P2.1–P2.3: 1/q, ‖b − v‖² and ‖a − u‖²; smaller is better. `clock` is
when the iteration ended, in seconds since the run began, by the run's clock (`flexfl.clock`).
`learning_rate` is η_t, that of the iteration.
"""

from __future__ import annotations

PER_CLIENT = (
    "compute_prob",
    "compute_cost",
    "compute_spent",
    "compute_queue",
    "compute_objective",
    "uplink_cost",
    "uplink_queue",
    "uplink_objective",
    "uplink_components",
    "uplink_bytes",
)
"""One number per client and iteration; the store keeps mean and quantiles over clients."""

COMPUTED = "computed"
"""Per client 1 if it computed, else 0; the store keeps the sum over clients under this name."""

PER_ITERATION = (
    "clock",
    "computed",
    "senders",
    "batch_loss",
    "learning_rate",
    "downlink_cost",
    "downlink_queue",
    "downlink_objective",
    "downlink_components",
    "downlink_bytes",
)
"""One number per iteration."""

SUMMED = ("compute_cost", "compute_spent", "uplink_cost")
"""Per client; the store also keeps their sums over all iterations, whether or not it records clients."""

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}

ITERATION_COLUMNS = PER_ITERATION + tuple(
    f"{name}_{statistic}" for name in PER_CLIENT for statistic in ("mean", *QUANTILES)
)

CLIENT_COLUMNS = (COMPUTED, *PER_CLIENT)

EVALUATION_COLUMNS = (
    "train_loss",
    "sample_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "average_test_loss",
    "average_test_accuracy",
    "seconds",
)
"""train_loss is f = Σ w·F of (1), the mean over clients; sample_loss the mean over training samples.
average_… are of the averaged model x̄, where `train.average` is set."""

SPENT_COLUMN = {
    "compute": "compute_spent_mean",
    "uplink": "uplink_cost_mean",
    "downlink": "downlink_cost",
}
"""What was really spent on each knob, on average over its entities."""

CHARGED_COLUMN = SPENT_COLUMN | {"compute": "compute_cost_mean"}
"""What the queue of each knob was charged, which is what the controller holds to the budget."""
