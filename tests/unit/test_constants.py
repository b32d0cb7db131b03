"""L, σ² and ε² from a model and data, on quadratics where all three are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flexfl.data.federated import Federated
from flexfl.experiments.constants import Probe, estimate, estimate_constants
from flexfl.models.flat import FlatModel
from flexfl.streams import Streams

CURVATURE = np.array([0.3, 1.0, 2.0, 5.0])


class Centre(nn.Module):
    """√A·(x − c) for samples c: with half the squared length as the loss, F is ½(x − c)ᵀA(x − c)."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("root", torch.from_numpy(np.sqrt(CURVATURE)))

    def forward(self, samples: Tensor) -> Tensor:
        return self.root * (self.x - samples)


def half_square(outputs: Tensor, labels: Tensor) -> Tensor:
    return 0.5 * (outputs**2).sum(dim=1).mean()


def probe_of(
    clients: int = 6, samples: int = 20, batch: int = 4, weights=None, **most: int
) -> tuple[Probe, np.ndarray]:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(clients, 1, 4)) + 0.5 * rng.normal(size=(clients, samples, 4))
    data = Federated.of_clients([(own, np.zeros(samples)) for own in centres])
    model = FlatModel(Centre(), torch.float64)
    w = np.full(clients, 1 / clients) if weights is None else weights
    probe = Probe(model, half_square, data, w, batch_size=batch, streams=Streams(1), **most)
    return probe, centres


def exact(centres: np.ndarray, importance: np.ndarray, batch: int) -> dict[str, np.ndarray]:
    """By client: L, ε² at the start (importance 1: everywhere), σ² of minibatches without replacement."""
    each = importance[:, None] * CURVATURE * (2.0 - centres.mean(axis=1))
    n = centres.shape[1]
    spread = (CURVATURE**2 * centres.var(axis=1, ddof=1)).sum(axis=1)
    return {
        "smoothness": importance * CURVATURE.max(),
        "variance": importance**2 * spread / batch * (1 - batch / n),
        "divergence": ((each - each.mean(axis=0)) ** 2).sum(axis=1),
        "loss": importance * 0.5 * (CURVATURE * (2.0 - centres) ** 2).sum(axis=2).mean(axis=1),
    }


def test_constants_of_quadratics_are_found():
    probe, centres = probe_of()
    found = estimate_constants(probe, learning_rate=0.05, batches=80)
    known = exact(centres, np.ones(6), 4)
    assert found.smoothness.largest == pytest.approx(known["smoothness"].max(), rel=0.01)
    assert found.smoothness.largest <= known["smoothness"].max() * (1 + 1e-9)
    assert found.divergence.mean == pytest.approx(known["divergence"].mean(), rel=1e-9)
    assert found.divergence.largest == pytest.approx(known["divergence"].max(), rel=1e-9)
    assert found.variance.mean == pytest.approx(known["variance"].mean(), rel=0.1)
    assert found.variance.low <= known["variance"].mean() <= found.variance.high
    assert found.variance.largest == pytest.approx(known["variance"].max(), rel=0.25)
    assert found.loss.mean == pytest.approx(known["loss"].mean(), rel=1e-9)
    # All clients were looked at: of what has no chance in it, the interval is a point.
    assert (
        found.divergence.low == pytest.approx(found.divergence.high) == pytest.approx(found.divergence.mean)
    )
    assert found.constants.gap == found.loss.mean


def test_of_some_samples_nothing_is_certain():
    probe, _ = probe_of(most_samples=10)
    found = estimate_constants(probe, learning_rate=0.05, places=1, batches=2, smooth_clients=6)
    assert not probe.complete
    assert found.divergence.low < found.divergence.mean < found.divergence.high


def test_weights_are_part_of_the_losses():
    weights = np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.1])
    probe, centres = probe_of(weights=weights)
    found = estimate_constants(probe, learning_rate=0.05, places=1, batches=80)
    known = exact(centres, 6 * weights, 4)
    assert found.smoothness.largest == pytest.approx(5.0 * 2.4, rel=0.01)
    assert found.divergence.mean == pytest.approx(known["divergence"].mean(), rel=1e-9)
    assert found.variance.mean == pytest.approx(known["variance"].mean(), rel=0.1)
    assert found.loss.mean == pytest.approx(known["loss"].mean(), rel=1e-9)


def test_some_clients_stand_for_all_without_bias():
    """Over many draws of clients, ε² and ‖∇f‖² are right on average; the interval covers ε²."""
    whole, centres = probe_of(clients=30, most_clients=30)
    known = exact(centres, np.ones(30), 4)["divergence"].mean()
    x = torch.full((4,), 1.0, dtype=torch.float64)
    gradient = CURVATURE * (1.0 - centres.mean(axis=(0, 1)))
    assert whole.squared_gradient(x) == pytest.approx((gradient**2).sum())
    model = FlatModel(Centre(), torch.float64)
    data = Federated.of_clients([(own, np.zeros(20)) for own in centres])
    divergences, squares, covered = [], [], 0
    for seed in range(25):
        probe = Probe(
            model,
            half_square,
            data,
            np.full(30, 1 / 30),
            batch_size=4,
            streams=Streams(seed),
            most_clients=8,
            most_samples=10**6,
        )
        assert len(set(probe.clients.tolist())) == 8
        found = estimate_constants(probe, learning_rate=0.05, places=1, batches=1, smooth_clients=1)
        divergences.append(found.divergence.mean)
        covered += found.divergence.low <= known <= found.divergence.high
        squares.append(probe.squared_gradient(x))
    assert np.mean(divergences) == pytest.approx(known, rel=0.1)
    assert np.mean(squares) == pytest.approx((gradient**2).sum(), rel=0.15)
    assert covered >= 15  # of 25; a 90 % interval from 8 clients that differ much


def test_the_bootstrap_draws_clients_only_if_some_are_missing():
    values = np.array([[1.0], [3.0], [8.0]])
    alone = estimate(values, sampled=False)
    assert (alone.low, alone.mean, alone.high, alone.largest) == (4.0, 4.0, 4.0, 8.0)
    drawn = estimate(values, sampled=True)
    assert drawn.low < 4.0 < drawn.high <= 8.0


def test_the_model_stays_as_it_is_and_dropout_does_not_blur_full_gradients():
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    model = FlatModel(module, torch.float64)
    before = model.params.clone()
    rng = np.random.default_rng(0)
    data = Federated.of_clients([(rng.normal(size=(9, 3)), rng.integers(0, 2, 9)) for _ in range(3)])
    loss = nn.functional.cross_entropy
    probe = Probe(model, loss, data, np.full(3, 1 / 3), batch_size=3, streams=Streams(1))
    state = torch.random.get_rng_state()
    found = estimate_constants(probe, learning_rate=0.1)
    assert torch.equal(model.params, before)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(probe.full(0, before)[0], probe.full(0, before)[0])
    again = Probe(model, loss, data, np.full(3, 1 / 3), batch_size=3, streams=Streams(1))
    assert estimate_constants(again, learning_rate=0.1) == found
