"""The check during a run: mixed gradients are found and named, and nothing else is disturbed."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from flexfl.errors import FlexFLError
from flexfl.models.flat import FlatModel
from flexfl.sim.gradients import Chain, MixedGradientsError, OnePass, Pieces, Recheck, choose
from flexfl.sim.gradients import recheck as module_of_recheck
from flexfl.sim.gradients.general import Looped, Vmapped
from flexfl.sim.gradients.pieces import Dense
from flexfl.sim.gradients.recheck import RECHECK, RECHECK_RATE
from flexfl.streams import Streams

CLIENTS = np.array([3, 5, 8, 9])
LOSS = functional.cross_entropy


def data(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    x = torch.randn(4, 6, 4, dtype=dtype, generator=torch.Generator().manual_seed(1))
    return x, x[..., :3].argmax(dim=-1)


def network(*parts: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), *parts, nn.Linear(8, 3))


def check(recheck: Recheck, path: Any, x: Tensor, y: Tensor, client: int = 8, iteration: int = 7) -> None:
    """One chunk, as an engine does it."""
    probe = recheck.probe(client, CLIENTS, x, y, iteration)
    pieces, _ = path(x, y)
    recheck.compare(probe, pieces)


class Clipped(nn.Module):
    """Scales the outputs of a whole minibatch down once they grow; at first it does nothing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x)
        return outputs * (9.0 / outputs.norm().clamp_min(1e-9)).clamp_max(1.0)


# When, and who ---------------------------------------------------------------------------------


def due(streams: Streams, iteration: int) -> bool:
    """Whether an engine checks a client in that iteration."""
    return bool(streams.uniform(RECHECK, iteration) < RECHECK_RATE)


def test_about_one_iteration_in_64_and_every_client_sometimes() -> None:
    model, streams = FlatModel(network(), torch.float64), Streams(4)
    assert sum(due(streams, t) for t in range(20_000)) == pytest.approx(20_000 / 64, rel=0.25)
    recheck = Recheck(Chain(model, LOSS), model, LOSS, streams)
    picked = [recheck.pick(CLIENTS, t) for t in range(1000)]
    assert {*picked} == {*CLIENTS.tolist()}
    again = Recheck(Chain(model, LOSS), model, LOSS, Streams(4))
    assert [again.pick(CLIENTS, t) for t in range(1000)] == picked  # as a resumed run does
    assert recheck.pick(CLIENTS[:0], 0) is None


def test_the_loop_is_not_checked_against_itself() -> None:
    model = FlatModel(network(), torch.float64)
    recheck = Recheck(Looped(model, LOSS), model, LOSS, Streams(4))
    assert all(recheck.pick(CLIENTS, t) is None for t in range(1000))


def test_only_the_chunk_with_the_client_is_kept() -> None:
    model = FlatModel(network(), torch.float64)
    recheck = Recheck(Chain(model, LOSS), model, LOSS, Streams(4))
    x, y = data()
    assert recheck.probe(None, CLIENTS, x, y, 0) is None
    assert recheck.probe(4, CLIENTS, x, y, 0) is None
    probe = recheck.probe(9, CLIENTS, x, y, 0)
    assert probe is not None
    assert (probe.client, probe.position) == (9, 3)
    recheck.compare(None, {})


# What is right passes --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [Chain, OnePass, Vmapped])
def test_right_gradients_pass_over_a_run(kind: type[OnePass | Vmapped], dtype: torch.dtype) -> None:
    module = network()
    module[2].bias.requires_grad_(False)
    model = FlatModel(module, dtype)
    path = kind(model, LOSS)
    x, y = data(dtype)
    path(x, y)  # the one pass holds the module from here on
    recheck = Recheck(path, model, LOSS, Streams(0))
    for t in range(20):
        for client in CLIENTS:
            check(recheck, path, x, y, int(client), t)
        with torch.no_grad():
            model.params -= 0.05 * torch.randn(model.dim, generator=torch.Generator().manual_seed(t))
    path.release()
    assert [p.requires_grad for p in module.parameters()] == [True, True, True, False]
    assert module[1].inplace
    assert not any(part._forward_hooks for part in module.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_minibatch_that_is_predicted_perfectly_passes(dtype: torch.dtype) -> None:
    """Its gradient is nothing but rounding, which differs from path to path."""
    x, y = data(dtype)
    model = FlatModel(nn.Sequential(nn.Linear(4, 3)), dtype)
    path = Chain(model, LOSS)
    recheck = Recheck(path, model, LOSS, Streams(0))
    for scale in (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0):
        with torch.no_grad():
            model.params.copy_(torch.cat([scale * torch.eye(3, 4).reshape(-1), torch.zeros(3)]))
        check(recheck, path, x, y)


def test_a_module_that_works_on_its_input_in_place_passes() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x.sub_(0.5).mul_(2.0)
            out: Tensor = self.layer(x)
            return out

    model = FlatModel(Centred(), torch.float64)
    path = Vmapped(model, LOSS)
    x, y = data()
    check(Recheck(path, model, LOSS, Streams(0)), path, x, y)
    assert not torch.equal(x, data()[0])


class OwnGenerator(nn.Module):
    """Draws from a generator that is not torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self._noise = nn.Linear(4, 3), np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * self._noise.random()
        return out


@pytest.mark.parametrize("make", [lambda: network(nn.Dropout(0.5)), OwnGenerator])
def test_what_draws_random_numbers_is_left_out(make: Any) -> None:
    model = FlatModel(make(), torch.float64)
    path = OnePass(model, LOSS)
    check(Recheck(path, model, LOSS, Streams(0)), path, *data())


def test_what_is_not_finite_is_left_to_the_engine() -> None:
    model = FlatModel(network(), torch.float64)
    path = Chain(model, LOSS)
    with torch.no_grad():
        model.params.fill_(float("nan"))
    check(Recheck(path, model, LOSS, Streams(0)), path, *data())


@pytest.mark.parametrize("parts", [(), (nn.Dropout(0.5),)])
def test_torchs_generator_is_left_as_it_was(parts: tuple[nn.Module, ...]) -> None:
    model = FlatModel(network(*parts), torch.float64)
    path = OnePass(model, LOSS)
    recheck = Recheck(path, model, LOSS, Streams(0))
    x, y = data()
    probe = recheck.probe(5, CLIENTS, x, y, 0)
    pieces, _ = path(x, y)
    before = torch.get_rng_state()
    with torch.no_grad():  # an engine may be in this mode
        recheck.compare(probe, pieces)
    assert torch.equal(torch.get_rng_state(), before)
    shifted: Pieces = {name: Dense(piece.dense(slice(None)).roll(1, 0)) for name, piece in pieces.items()}
    if not parts:
        with pytest.raises(MixedGradientsError):
            recheck.compare(probe, shifted)
        assert torch.equal(torch.get_rng_state(), before)


# What is wrong is found ------------------------------------------------------------------------


def test_a_path_that_begins_to_mix_clients_is_found() -> None:
    model = FlatModel(network(), torch.float64)
    path = Chain(model, LOSS)
    recheck = Recheck(path, model, LOSS, Streams(2))
    picked: list[int] = []

    def run(iterations: int) -> None:
        x, y = data()
        for t in range(iterations):
            client = recheck.pick(CLIENTS, t) if due(Streams(2), t) else None
            probe = recheck.probe(client, CLIENTS, x, y, t)
            pieces, _ = path(x, y)
            if t >= 300:  # from here on, everyone gets the mean of all
                mean = pieces["2.weight"].dense(slice(None)).mean(dim=0, keepdim=True)
                pieces["2.weight"] = Dense(mean.expand(4, -1, -1))
            picked.extend([] if client is None else [client])
            recheck.compare(probe, pieces)

    with pytest.raises(MixedGradientsError) as raised:
        run(1000)
    error = raised.value
    assert isinstance(error, FlexFLError)
    assert (error.path, error.client, error.parameter) == ("one pass (chain)", picked[-1], "2.weight")
    assert 300 <= error.iteration < 700
    assert len(picked) > 1  # it was right before
    for part in (f"client {error.client}", f"iteration {error.iteration}", 'engine.gradients = "loop"'):
        assert part in str(error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_begin_to_interact_are_found(dtype: torch.dtype) -> None:
    """The one pass, asked for by a user who is wrong about the module."""
    model = FlatModel(Clipped(), dtype)
    x, y = data(dtype)
    path = choose(model, LOSS, x[:2], y[:2], "one-pass")
    recheck = Recheck(path, model, LOSS, Streams(0))
    check(recheck, path, x, y)
    with torch.no_grad():
        model.params *= 20
    with pytest.raises(
        MixedGradientsError, match=r"gradient of layer\.\w+ for client 8 in iteration 7, by one pass"
    ):
        check(recheck, path, x, y)
    path.release()
    assert all(p.requires_grad for p in model.module.parameters())


def test_in_float32_a_difference_must_be_there_in_float64(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An activation that a rounding error moves across the kink of a ReLU is no mixture."""
    model = FlatModel(network(), torch.float32)
    path = OnePass(model, LOSS)
    recheck = Recheck(path, model, LOSS, Streams(0))
    x, y = data(torch.float32)
    monkeypatch.setattr(module_of_recheck, "_IN_LESS", 0.0)
    with caplog.at_level(logging.DEBUG, logger="flexfl"):
        for _ in range(2):  # the module can be used on
            check(recheck, path, x * 1.0, y)
    assert "differs by rounding only" in caplog.text
