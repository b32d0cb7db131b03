"""One client's gradients and evaluation, against plain autograd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from deploy.in_memory import small_spec
from flexfl.data.datasets import load_federated
from flexfl.data.federated import Federated
from flexfl.data.minibatches import Minibatches
from flexfl.deploy.plan import build_learner
from flexfl.streams import Streams

PLACE = 2


def whole_data(spec: Any) -> Federated:
    data = spec.data
    return load_federated(data.name, clients=data.clients, partition=data.partition, seed=spec.train.seed)


def spec_in_float64(**sections: Any) -> Any:
    return small_spec(engine={"dtype": "float64", "threads": 1}, **sections)


def test_a_gradient_is_that_of_the_minibatch_which_a_simulation_draws() -> None:
    spec = spec_in_float64()
    learner = build_learner(spec, PLACE)
    params = np.random.default_rng(1).normal(size=learner.model.dim) * 0.1
    found, loss = learner.gradient(params, 3, iteration=9)

    whole = whole_data(spec)
    drawn = Minibatches(whole.parts, spec.train.batch_size, Streams(spec.train.seed)).peek(PLACE, 3)
    samples = torch.from_numpy(drawn)
    module = learner.model.module
    expected = cross_entropy(module(whole.train_x[samples].double()), whole.train_y[samples])
    grads = torch.autograd.grad(expected, list(module.parameters()))
    np.testing.assert_allclose(found, torch.cat([g.reshape(-1) for g in grads]), rtol=1e-12, atol=1e-15)
    assert loss == pytest.approx(expected.item())


def test_a_gradient_depends_on_the_model_it_is_asked_for_alone() -> None:
    learner = build_learner(spec_in_float64(), PLACE)
    rng = np.random.default_rng(1)
    one, other = (rng.normal(size=learner.model.dim) * 0.1 for _ in range(2))
    first, _ = learner.gradient(one, 0, 0)
    learner.gradient(other, 5, 5)
    learner.evaluate(other)
    np.testing.assert_array_equal(learner.gradient(one, 0, 0)[0], first)


def test_a_parameter_that_the_network_does_not_use_has_a_gradient_of_zero() -> None:
    spec = spec_in_float64(model={"name": "deploy.networks:idle"})
    learner = build_learner(spec, PLACE)
    found, _ = learner.gradient(np.ones(learner.model.dim), 0, 0)
    assert learner.model.dim == 7850 + 2
    assert (found[-2:] == 0).all()
    assert (found[:-2] != 0).any()


def test_evaluation_is_over_all_samples_of_this_client_and_no_others() -> None:
    learner = build_learner(spec_in_float64(), PLACE)
    params = np.random.default_rng(1).normal(size=learner.model.dim) * 0.1
    told = learner.evaluate(params)
    spec = spec_in_float64()
    part = torch.from_numpy(whole_data(spec).parts[PLACE])
    whole = whole_data(spec)
    with torch.no_grad():
        out = learner.model.module(whole.train_x[part].double())
    labels = whole.train_y[part]
    assert told["samples"] == len(part)
    assert told["train_loss"] == pytest.approx(cross_entropy(out, labels).item())
    assert told["train_accuracy"] == pytest.approx((out.argmax(1) == labels).double().mean().item())
    assert "test_accuracy" not in told


def test_samples_of_its_own_are_used_instead(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", train_x=rng.random((40, 28, 28)), train_y=np.arange(40) % 10)
    learner = build_learner(spec_in_float64(), PLACE, tmp_path / "own.npz")
    assert learner.evaluate(np.zeros(learner.model.dim))["samples"] == 40
    found, loss = learner.gradient(np.zeros(learner.model.dim), 0, 0)
    assert np.isfinite(found).all()
    assert loss == pytest.approx(np.log(10))
