"""What clients compute in an iteration: the members against torch's optimisers, what they cost and use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import flexfl
from flexfl.control.feasible import budget_faults
from flexfl.costs import ConstantCompute, Linear, MeasuredCompute
from flexfl.costs.gradients import of_gradients
from flexfl.data.augment import crop_flip
from flexfl.data.minibatches import Minibatches
from flexfl.errors import InputError
from flexfl.local import ClientMomentum, ClientWork, LocalAdamW, LocalSGD, OneGradient
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients.each import choose_each
from flexfl.spec.build import build_setup, packages
from flexfl.spec.load import to_toml
from flexfl.spec.schema import parse
from flexfl.streams import Entities, Streams
from small import BUDGETS, POLICIES, small_data, small_engine, small_network, small_spec

ETA, STEPS, ROUNDS = 0.03, 4, 3


def reference(make: Any, rounds: int = ROUNDS, *, fresh: bool = True) -> list[np.ndarray]:
    """The changes of rounds of local steps by an optimiser of torch, each round from where the last ended."""
    model, data = FlatModel(small_network(), torch.float64), small_data()
    optimiser, changes = make(model.module.parameters()), []
    for start in range(0, rounds * STEPS, STEPS):
        before = model.params.clone()
        optimiser = make(model.module.parameters()) if fresh else optimiser
        for k in range(start, start + STEPS):
            optimiser.zero_grad()
            part = slice(7 * k % 60, 7 * k % 60 + 5)
            cross_entropy(model.module(data.train_x[part]), data.train_y[part]).backward()
            optimiser.step()
        changes.append((model.params - before).numpy())
    return changes


def ours(local: Any, rounds: int = ROUNDS) -> list[np.ndarray]:
    """The same by local work, which is given the gradients alone."""
    model, data, work = FlatModel(small_network(), torch.float64), small_data(), ClientWork(local)
    x, changes = model.params.numpy().copy(), []
    for start in range(0, rounds * STEPS, STEPS):

        def gradient(y: np.ndarray, k: int, start: int = start) -> np.ndarray:
            model.params.copy_(torch.from_numpy(y))
            part = slice(7 * (start + k) % 60, 7 * (start + k) % 60 + 5)
            model.module.zero_grad()
            cross_entropy(model.module(data.train_x[part]), data.train_y[part]).backward()
            return torch.cat([p.grad.reshape(-1) for p in model.module.parameters()]).numpy()

        changes.append(work.change(gradient, x, ETA))
        x = x + changes[-1]
    return changes


@pytest.mark.parametrize(
    ("local", "make", "fresh"),
    [
        (LocalSGD(STEPS), lambda p: torch.optim.SGD(p, ETA), True),
        (LocalSGD(STEPS, 0.9, 0.1), lambda p: torch.optim.SGD(p, ETA, 0.9, weight_decay=0.1), True),
        (LocalAdamW(STEPS, weight_decay=0.2), lambda p: torch.optim.AdamW(p, ETA, weight_decay=0.2), True),
        (
            LocalAdamW(STEPS, 0.8, 0.95, 1e-6, persistent=True),
            lambda p: torch.optim.AdamW(p, ETA, (0.8, 0.95), 1e-6),
            False,
        ),
    ],
)
def test_local_steps_are_those_of_torch(local: Any, make: Any, fresh: bool) -> None:
    for found, expected in zip(ours(local), reference(make, fresh=fresh), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_one_step_of_sgd_is_the_papers_gradient() -> None:
    x, g = np.array([1e8, 1.0, -3.0]), np.array([0.3, 1e-9, 7.0])
    for local in (OneGradient(), LocalSGD(1), ClientMomentum(1.0)):
        work = ClientWork(local)
        for _ in range(3):
            np.testing.assert_array_equal(work.change(lambda y, k: g, x, 0.1), -0.1 * g)  # to the last digit


@pytest.mark.parametrize("kind", [LocalSGD, LocalAdamW])
def test_local_steps_may_have_a_rate_of_their_own(kind: Any) -> None:
    """Then the run's is that of the change, as an outer rate."""

    def change(local: Any, eta: float) -> np.ndarray:
        return ClientWork(local).change(lambda y, k: y - k, np.array([1.0, -2.0]), eta)

    np.testing.assert_array_equal(change(kind(3, learning_rate=0.01), 0.5), 0.5 * change(kind(3), 0.01))


def test_momentum_is_a_running_mean_that_begins_with_the_first_gradient() -> None:
    work, x = ClientWork(ClientMomentum(0.25)), np.zeros(1)
    found = [float(work.change(lambda y, k, g=g: np.array([g]), x, 1.0)[0]) for g in (8.0, 4.0, 4.0)]  # type: ignore[misc]
    assert found == [-8.0, -7.0, -6.25]


# What it costs, and what it uses ------------------------------------------------------------------


def test_a_computation_costs_its_gradients_wherever_it_is_counted() -> None:
    spec = parse(
        {
            "data": {"clients": 2},
            "train": {"local": {"kind": "sgd", "steps": 3}},
            "control": {"policy": "full"},
            "costs": {"compute": {"kind": "constant", "per_gradient": 0.5, "unit": "second"}},
            "clock": {"compute": {"kind": "device", "per_gradient": 2.0}},
            "budget": {"battery": {"limit": 1.0, "compute": {"kind": "constant", "per_gradient": 0.1}}},
        }
    )
    setup = build_setup(spec)
    everyone = Entities.all_clients(2)
    knob = setup.knob(everyone, 5, setup.joint_queues())
    assert knob.decide(0).spent.tolist() == [1.5, 1.5]
    assert setup.costs["compute"].mean_cost == pytest.approx(1.5)  # type: ignore[attr-defined]
    moment = Streams(1).moment("compute", 0, 5, everyone)
    assert isinstance(setup.costs["compute"].at(moment), Linear)  # which has a closed form
    battery: Any = setup.joint["battery"].costs["compute"]
    assert battery.at(moment)(1.0).tolist() == pytest.approx(0.3)
    once = build_setup(parse(spec.plain() | {"train": {}}))
    times = (each.clock.models["compute"].at(moment)(np.ones(2)) for each in (setup, once))  # type: ignore[attr-defined]
    np.testing.assert_allclose(next(times), 3 * next(times))
    assert isinstance(setup.parts()["costs.compute"], ConstantCompute)  # of which an identity is made
    total = build_setup(parse(spec.plain() | {"budget": {"compute": "1 s"}}))
    assert "1.5" in str(budget_faults(total, 2, 5)[0])  # not even one computation of three gradients


def test_what_is_measured_is_measured_as_a_whole() -> None:
    measured = MeasuredCompute()
    assert of_gradients(measured, 5) is measured


@pytest.mark.parametrize("sizes", [[9, 9, 9], [9, 3, 4, 20, 1]])
def test_minibatches_ahead(sizes: list[int]) -> None:
    """H steps see the H batches that one step after the other would, over the ends of epochs, too."""
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    ahead, plain = (Minibatches(parts, 4, Streams(3)) for _ in range(2))
    clients = np.arange(len(sizes))
    for _ in range(4):
        found = {
            (int(n), k): samples
            for group in ahead.by_size(clients)
            for k in (1, 0, 2)
            for n, samples in zip(group, ahead.ahead(group, k), strict=True)
        }
        ahead.used += 3
        for k in range(3):
            for group, drawn in plain.draw(clients):
                for n, samples in zip(group, drawn, strict=True):
                    np.testing.assert_array_equal(found[int(n), k], samples)
    assert np.array_equal(ahead.used, plain.used)


# In the engine ------------------------------------------------------------------------------------


class Sorting(nn.Module):
    """What vmap cannot trace: which layer comes first depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x).tanh() if float(x.sum()) > 0 else x)


@pytest.mark.parametrize(
    ("module", "shape", "wanted", "path"),
    [
        (small_network(), (5,), "auto", "vmap"),
        (small_network(), (5,), "loop", "loop"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 3)), (1, 5, 5), "auto", "loop"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 3)), (1, 5, 5), "vmap", "vmap"),
        (Sorting(), (5,), "auto", "loop"),
    ],
)
def test_gradients_at_different_parameters(module: Any, shape: Any, wanted: str, path: str) -> None:
    model = FlatModel(module, torch.float64)
    x, y = torch.randn(3, 4, *shape, dtype=torch.float64), torch.randint(3, (3, 4))
    chosen = choose_each(model, cross_entropy, x[:2], y[:2], wanted)
    assert chosen.name == path
    start = model.params.clone()
    params = start + torch.randn(3, model.dim, dtype=torch.float64) / 10
    found, total = chosen(params, x, y)
    expected = 0.0
    for n in range(3):
        model.params.copy_(params[n])
        loss = cross_entropy(module(x[n]), y[n])
        grads = torch.autograd.grad(
            loss, list(module.parameters()), materialize_grads=True, allow_unused=True
        )
        torch.testing.assert_close(found[n], torch.cat([g.reshape(-1) for g in grads]))
        expected += float(loss.detach())
    assert total == pytest.approx(expected)
    assert all(p.requires_grad for p in module.parameters())


def test_a_path_that_does_not_serve_local_steps_is_refused() -> None:
    model, x, y = FlatModel(Sorting(), torch.float64), torch.randn(2, 4, 5), torch.zeros(2, 4).long()
    with pytest.raises(InputError, match=r"engine\.gradients must be a path that serves the local steps"):
        choose_each(model, cross_entropy, x, y, "vmap")


def test_large_models_go_a_few_clients_at_a_time(monkeypatch: Any) -> None:
    spec = small_spec(POLICIES["full"], {}, {}, local={"kind": "adamw", "steps": 2}, learning_rate=0.01)
    whole = small_engine(spec)
    monkeypatch.setattr("flexfl.sim.local._BYTES", 2 * 8 * whole.dim)
    parts = small_engine(spec)
    assert parts._local is not None
    assert parts._local.at_once == 2
    for _ in range(4):
        whole.step()
        parts.step()
    np.testing.assert_allclose(whole.params, parts.params, rtol=0, atol=1e-12)


def test_what_clients_remember_can_be_in_files(tmp_path: Any) -> None:
    given: dict[str, Any] = {
        "model": small_network(),
        "data": small_data(),
        "train": {"iterations": 12, "batch_size": 4, "local": "momentum"},
        "budget": BUDGETS["all"],
    }
    memory = flexfl.simulate(**given)
    file = flexfl.simulate(**given, engine={"residuals": "file"}, out=tmp_path / "run")
    np.testing.assert_array_equal(memory.params, file.params)


def test_each_local_step_draws_its_own_numbers(tmp_path: Path) -> None:
    """Of dropout and augmentation; the first step as ever, and a resumed run the same ones."""
    images = torch.rand(2, 3, 1, 9, 9)
    first, again, second = (
        crop_flip(images, np.arange(2), 2, Streams(1), 4, *step) for step in ((), (0,), (1,))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert Streams(1).torch_seed("dropout", 4, 1) != Streams(1).torch_seed("dropout", 4)

    def run(iterations: int, **more: Any) -> flexfl.Result:
        dropping = nn.Sequential(nn.Dropout(0.5), small_network())
        train = {"iterations": iterations, "batch_size": 4, "local": {"kind": "sgd", "steps": 3}}
        return flexfl.simulate(model=dropping, data=small_data(), train=train, **more)

    run(4, out=tmp_path / "run")
    np.testing.assert_array_equal(run(8, out=tmp_path / "run", resume=True).params, run(8).params)


def test_a_change_is_divided_by_q() -> None:
    """E[(𝟙/q)·Δ] = Δ: over many seeds, q < 1 moves clients as far as q = 1."""
    local = {"kind": "sgd", "steps": 2}
    always = small_engine(small_spec(POLICIES["full"], {}, {}, local=local))
    start = always.conserved()
    always.step()
    expected, found = always.conserved() - start, []
    for seed in range(200):
        spec = small_spec({"policy": "fixed-prob", "compute_prob": 0.5}, {}, {}, local=local, seed=seed)
        engine = small_engine(spec)
        # The same minibatches for all seeds: what is left to chance is who computes.
        engine._batches = always._batches.__class__(small_data().parts, 4, Streams(1))
        engine.step()
        found.append(engine.conserved() - start)
    deviation = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - expected) <= 5 * deviation + 1e-12).all()


# Named by a spec ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ("sdg", "train.local must be one of gradient, sgd, adamw, momentum or module:name.*did you mean sgd"),
        ({"steps": 3}, "train.local.steps is not a parameter of gradient.*one of sgd, adamw"),
        ({"kind": "sgd", "steps": 0}, r"train\.local\.steps must be a whole number ≥ 1, got 0"),
        ({"kind": "sgd", "momentum": 1.0}, r"train\.local\.momentum must be in \[0, 1\), got 1"),
        ({"kind": "adamw", "beta2": -1}, r"train\.local\.beta2 must be in \[0, 1\)"),
        ({"kind": "momentum", "share": 0}, r"train\.local\.share must be in \(0, 1\]"),
    ],
)
def test_mistakes_are_named(local: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        parse({"train": {"local": local}})


class NoNumber(LocalSGD):
    gradients = 2.5


class WrongShape(LocalSGD):
    def change(self, gradient: Any, x: Any, eta: float, memory: Any) -> Any:
        return 0.0, memory


class Greedy(LocalSGD):
    gradients = 1


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (NoNumber(), r"train\.local must take a whole number of gradients ≥ 1, got 2.5"),
        (LocalSGD, r"train\.local\.kind must be a LocalWork, got 'the class LocalSGD'.*give an object of it"),
        (WrongShape(), r"train\.local must return a change of the shape of x"),
        (Greedy(), r"it asked for minibatch 4 of 1"),
        (5, r"train\.local must be one of"),
    ],
)
def test_own_work_is_tried_before_any_work_starts(local: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        flexfl.simulate(model=small_network(), data=small_data(), train={"iterations": 1, "local": local})


def test_a_spec_names_it_and_the_run_tells_it_apart() -> None:
    default, named = parse({}), parse({"train": {"local": {"kind": "examples.own_local:Proximal"}}})
    assert "local" not in to_toml(default)  # so that runs of before are the same run
    assert parse({"train": {"local": "gradient"}}) == default
    assert 'kind = "examples.own_local:Proximal"' in to_toml(named)
    assert packages(named) == {"train.local.kind": "examples"}


def test_a_run_is_resumed_with_the_same_work_only(tmp_path: Path) -> None:
    def run(iterations: int, steps: int, **more: Any) -> flexfl.Result:
        train = {"iterations": iterations, "batch_size": 4, "local": LocalSGD(steps, 0.5)}
        return flexfl.simulate(
            model=small_network(), data=small_data(), train=train, engine={"dtype": "float64"}, **more
        )

    run(6, 2, out=tmp_path / "run")
    with pytest.raises(flexfl.FlexFLError, match=r"train\.local\.steps"):
        run(9, 3, out=tmp_path / "run", resume=True)
    resumed = run(9, 2, out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.params, run(9, 2).params)
