"""Weights are part of F_n: what is trained, decided and reported is f = Σ w·F."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from flexfl import Federated, simulate
from flexfl.algorithm import reference
from flexfl.evaluate import Evaluator
from flexfl.models.flat import FlatModel
from flexfl.spec.build import build_setup
from flexfl.spec.schema import parse
from small import BUDGETS, CLIENTS, COSTS, POLICIES, small_data, small_network, small_spec

WEIGHTS = np.array([0.3, 0.1, 0.2, 0.05, 0.25, 0.1])


def quadratic(scale):
    """g_n(x) = scale_n·(x − n): of F_n = scale_n·½‖x − n‖²."""
    return lambda n, x, used: scale[n] * (x - n - 0.1 * used)


@pytest.mark.parametrize("costs", ["the paper's", "packets", "constant"])
@pytest.mark.parametrize("budget", ["all", "shared", "some"])
def test_weights_beside_are_weights_within(costs, budget):
    """Training Σ w·F decides as training the plain mean of N·w·F does, as the paper has it."""
    setup = build_setup(small_spec(POLICIES["online"], COSTS[costs], BUDGETS[budget]))
    shared = {"clients": CLIENTS, "setup": setup, "learning_rate": 0.3, "iterations": 25}
    start, scale = np.zeros(12), CLIENTS * WEIGHTS
    beside = reference(start, quadratic(np.ones(CLIENTS)), weights=WEIGHTS, **shared)
    within = reference(start, quadratic(scale), **shared)
    for one, other in zip(beside, within, strict=True):
        assert np.array_equal(one.uplink.components, other.uplink.components)
        assert np.array_equal(one.compute.computed, other.compute.computed)
        np.testing.assert_allclose(one.params, other.params, rtol=0, atol=1e-10)
        np.testing.assert_allclose(scale[:, None] * one.client_residual, other.client_residual, atol=1e-10)


def test_what_counts_more_gets_more_of_a_shared_budget():
    """Five clients of a tenth of the weight each and one of half: a lower f for the same spending."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 600)
    features = rng.normal(size=(600, 20)) + 2 * np.eye(3, 20)[(labels + np.arange(600) // 100) % 3]
    parts = [(features[100 * n : 100 * n + 100], labels[100 * n : 100 * n + 100]) for n in range(6)]
    data = Federated.of_clients(parts)
    weights = [0.75, 0.05, 0.05, 0.05, 0.05, 0.05]
    found = {}
    for name, tradeoff in (("follows", 0.02), ("as it was", [0.02 / (6 * w) ** 2 for w in weights])):
        result = _run(data, weights, tradeoff)
        found[name] = result.summary
    spent = [found[name]["average_cost"]["uplink"]["spent"] for name in found]
    assert spent[0] <= 1.01 * spent[1]
    assert found["follows"]["train_loss"] < 0.9 * found["as it was"]["train_loss"]


def _run(data, weights, tradeoff):
    torch.manual_seed(0)
    spec = parse(
        {
            "data": {"clients": 6, "weights": weights},
            "train": {"iterations": 400, "seed": 2, "evaluate_every": 100},
            "budget": {"uplink": {"shared": [{"clients": "0-5", "limit": 0.03}]}},
            "control": {"tradeoff": {"uplink": tradeoff}},
            "engine": {"dtype": "float64"},
        }
    )
    return simulate(spec, data=data, model=torch.nn.Linear(20, 3))


@pytest.mark.parametrize("loss", [cross_entropy, lambda outputs, labels: cross_entropy(outputs, labels)])
def test_train_loss_is_the_objective(loss):
    """For unequal weights, for unequal sizes, for a sample that two clients hold and one that nobody does."""
    data, network = small_data(), small_network().double()
    parts = tuple(np.arange(n, 80, n + 2) for n in range(6))
    uneven = Federated(data.train_x, data.train_y, None, None, parts)
    for given, weights in ((data, WEIGHTS), (uneven, None), (uneven, WEIGHTS)):
        found = Evaluator(FlatModel(network, torch.float64), loss, given, weights)()
        with torch.no_grad():
            mine = [(given.train_x[part], given.train_y[part]) for part in given.parts]
            losses = [float(cross_entropy(network(x), y)) for x, y in mine]
        expected = np.mean(losses) if weights is None else weights @ losses
        assert found["train_loss"] == pytest.approx(expected, rel=1e-12)
        assert found["sample_loss"] == pytest.approx(given.sizes @ losses / given.sizes.sum(), rel=1e-12)


def test_chunks_across_clients(monkeypatch):
    """A pass that ends within a client's samples changes nothing, for a loss of one's own either."""
    data, network = small_data(), torch.nn.Linear(5, 1).double()
    real = Federated(data.train_x, data.train_x[:, :1] ** 2, None, None, data.parts)
    model = FlatModel(network, torch.float64)
    whole = Evaluator(model, mse_loss, real, WEIGHTS)()
    monkeypatch.setattr(Evaluator, "_samples_at_once", lambda self, x: 7)
    parts = Evaluator(model, mse_loss, real, WEIGHTS)()
    assert parts["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-12)
    assert parts["train_accuracy"] is None


def test_outputs_that_only_the_loss_can_take_apart():
    data, network = small_data(), small_network().double()

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x), x

    plain = Evaluator(FlatModel(network, torch.float64), cross_entropy, data, WEIGHTS)()
    loss = lambda outputs, labels: cross_entropy(outputs[0], labels)  # noqa: E731
    pair = Evaluator(FlatModel(Two(), torch.float64), loss, data, WEIGHTS)()
    assert pair["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-12)
