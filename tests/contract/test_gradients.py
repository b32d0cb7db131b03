"""Gradients by client: every path equals a plain loop of autograd over clients."""

from __future__ import annotations

import logging
from types import MethodType

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from flexfl.errors import InputError
from flexfl.models.flat import FlatModel
from flexfl.models.pooling import Pool
from flexfl.sim.gradients import Chain, OnePass, choose
from flexfl.sim.gradients.general import Looped, Vmapped

EVERYONE = slice(None)


def plain(model, loss, x, y):
    """One client after another, with nothing of ours: the module itself, its loss, backward."""
    grads = {name: [] for name in model.names}
    for x_n, y_n in zip(x, y, strict=True):
        model.module.zero_grad()
        loss(model.module(x_n), y_n).backward()
        named = dict(model.module.named_parameters())
        for name in model.names:
            p = named[name]
            grads[name].append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
    model.module.zero_grad()
    return {name: torch.stack(listed) for name, listed in grads.items()}


def agree(module, x, y, *, loss=functional.cross_entropy, path=None, wanted="auto"):
    module.eval()
    model = FlatModel(module, torch.float64)
    trainable = [p.requires_grad for p in module.parameters()]
    expected = plain(model, loss, x, y)
    chosen = choose(model, loss, x[:2], y[:2], wanted)
    if path is not None:
        assert chosen.name.startswith(path)
    ways = [chosen, Looped(model, loss)]
    if isinstance(chosen, Chain):  # what serves a chain need not be one
        ways.append(OnePass(model, loss))
    for way in ways:
        pieces, total = way(x, y)
        if isinstance(way, OnePass):
            way.release()
        assert set(pieces) == set(expected)
        for name, wanted in expected.items():
            torch.testing.assert_close(pieces[name].dense(EVERYONE).reshape(wanted.shape), wanted)
            torch.testing.assert_close(
                pieces[name].dense(slice(1, 2)).reshape(wanted[1:2].shape), wanted[1:2]
            )
        assert total == pytest.approx(
            sum(float(loss(module(a), b).detach()) for a, b in zip(x, y, strict=True))
        )
    assert [p.requires_grad for p in module.parameters()] == trainable
    return chosen


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def labels(clients, size, classes=3):
    return torch.randint(classes, (clients, size))


SIZES = {"clients": st.integers(2, 4), "size": st.integers(1, 4), "seed": st.integers(0, 99)}


@settings(max_examples=15)
@given(**SIZES, width=st.integers(1, 6), bias=st.booleans(), inner=st.booleans())
def test_linear(clients, size, seed, width, bias, inner):
    torch.manual_seed(seed)
    shape = (5, 4) if inner else (4,)
    layers = [nn.Linear(4, width, bias=bias), nn.ReLU(inplace=True), nn.Flatten()]
    module = nn.Sequential(*layers, nn.Linear(width * (5 if inner else 1), 3))
    agree(module, numbers(clients, size, *shape), labels(clients, size), path="one pass")


@settings(max_examples=20)
@given(
    **SIZES,
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    two=st.booleans(),
)
def test_conv(clients, size, seed, stride, padding, dilation, groups, bias, two):
    torch.manual_seed(seed)
    kind = nn.Conv2d if two else nn.Conv1d
    first = kind(2, 4, 3, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias)
    pool = nn.AdaptiveAvgPool2d(1) if two else nn.AdaptiveAvgPool1d(1)
    module = nn.Sequential(first, nn.Tanh(), pool, nn.Flatten(), nn.Linear(4, 3))
    spatial = (9, 8) if two else (9,)
    agree(module, numbers(clients, size, 2, *spatial), labels(clients, size), path="one pass")


@settings(max_examples=15)
@given(**SIZES, padding=st.sampled_from([None, 0, 3]))
def test_embedding(clients, size, seed, padding):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Embedding(7, 4, padding_idx=padding), nn.Flatten(), nn.Linear(20, 3))
    agree(module, torch.randint(7, (clients, size, 5)), labels(clients, size), path="one pass")


@settings(max_examples=15)
@given(**SIZES, layer=st.booleans(), affine=st.booleans())
def test_norms(clients, size, seed, layer, affine):
    torch.manual_seed(seed)
    norm = nn.LayerNorm((4, 6), elementwise_affine=affine) if layer else nn.GroupNorm(2, 4, affine=affine)
    module = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), norm, nn.Flatten(), nn.Linear(24, 3))
    agree(module, numbers(clients, size, 2, 6), labels(clients, size), path="one pass")


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return functional.relu(x + self.second(functional.relu(self.norm(self.first(x)))))


class Transformer(nn.Module):
    """A block of attention written with linear layers."""

    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.head = nn.Linear(width, 3)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v))
        x = x + self.mlp(self.norms[1](x))
        return self.head(x.mean(dim=1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Tied(nn.Module):
    """One table that embeds and that scores; one layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.twice = nn.Embedding(5, 4), nn.Linear(4, 4)
        self.score = nn.Linear(4, 5, bias=False)
        self.score.weight = self.embed.weight

    def forward(self, tokens):
        return self.score(torch.tanh(self.twice(torch.tanh(self.twice(self.embed(tokens).mean(dim=1))))))


class Behind(nn.Module):
    """Uses a layer's weight past the layer: hooks cannot see it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) + functional.linear(x, self.layer.weight)


class Mixing(nn.Module):
    """Subtracts the mean over the batch: one pass would mix clients."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        outputs = self.layer(x)
        return outputs - 0.5 * outputs.mean(dim=0)


class Own(nn.Module):
    """A parameter that no layer holds."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x * self.scale)


TOKENS = torch.randint(5, (3, 2, 6), generator=torch.Generator().manual_seed(1))
IMAGES = torch.randn(3, 2, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
ROWS = torch.randn(3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def padded(**options):
    return nn.Sequential(nn.Conv2d(2, 3, 3, **options), nn.Flatten(), nn.Linear(108, 3))


RESNET = nn.Sequential(
    nn.Conv2d(2, 4, 3, padding=1),
    Residual(4),
    Residual(4),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(4, 3),
)


@pytest.mark.parametrize(
    ("module", "x", "path"),
    [
        (RESNET, IMAGES, "vmap"),
        (Transformer(), TOKENS, "vmap"),
        (Tied(), TOKENS, "vmap"),
        (Behind(), ROWS, "vmap"),
        (Mixing(), ROWS, "vmap"),
        (Own(), ROWS, "vmap"),
        (padded(padding=1, padding_mode="circular"), IMAGES, "vmap"),
        (padded(padding="same"), IMAGES, "vmap"),
        (Recurrent(), ROWS.reshape(3, 2, 1, 4).expand(3, 2, 5, 4), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_whole_networks(module, x, path):
    y = labels(3, 2, 5 if isinstance(module, Tied) else 3)
    chosen = agree(module, x, y, path=path)
    if path is None:
        assert chosen.name in ("vmap", "loop")


@pytest.mark.parametrize(("module", "x"), [(RESNET, IMAGES), (Transformer(), TOKENS), (Tied(), TOKENS)])
def test_the_one_pass_can_be_asked_for(module, x, caplog):
    """By a user who knows that samples are kept apart; the log says what is not known."""
    chosen = agree(module, x, labels(3, 2, 5 if isinstance(module, Tied) else 3), wanted="one-pass")
    assert type(chosen) is OnePass
    assert "is not a type of layer that is known to keep samples apart" in caplog.text


def test_frozen_parameters_have_no_gradient():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    chosen = agree(module, ROWS, labels(3, 2), path="one pass")
    pieces, _ = chosen(ROWS, labels(3, 2))
    assert set(pieces) == {"0.bias", "2.weight", "2.bias"}
    assert not module[0].weight.requires_grad


def test_an_unused_parameter_has_gradient_zero():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x)

    agree(Spare(), ROWS, labels(3, 2), wanted="one-pass")
    agree(Spare(), ROWS, labels(3, 2), path="vmap")


LOSSES = {
    "mse": (functional.mse_loss, lambda: numbers(3, 2, 3)),
    "own": (
        lambda out, y: (out.abs().sum(dim=1) * y.double()).mean() + 0.1 * out.square().mean(),
        lambda: labels(3, 2),
    ),
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.1), lambda: labels(3, 2)),
    "binary": (nn.BCEWithLogitsLoss(), lambda: torch.rand(3, 2, 3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_ones_own(name):
    loss, make = LOSSES[name]
    agree(
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), ROWS, make(), loss=loss, path="one pass"
    )


def test_the_path_is_named_in_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="flexfl"):
        choose(FlatModel(Own(), torch.float64), functional.cross_entropy, ROWS, labels(3, 2))
    assert "gradients: vmap" in caplog.text


def test_hooks_leave_the_module_as_it_was():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    model = FlatModel(module, torch.float64)
    path = OnePass(model, functional.cross_entropy)
    path(ROWS, labels(3, 2))
    path.release()
    assert module[1].inplace
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    assert not any(m._forward_hooks for m in module.modules())


def chain():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Sequential(nn.ReLU(), nn.Linear(5, 3)))


def test_a_chain_is_passed_by_hand():
    chosen = agree(chain(), ROWS, labels(3, 2))
    assert isinstance(chosen, Chain)
    assert isinstance(
        agree(chain(), ROWS, labels(3, 2), loss=nn.CrossEntropyLoss(label_smoothing=0.1)), Chain
    )
    frozen = chain()
    frozen[1].weight.requires_grad_(False)
    assert isinstance(agree(frozen, ROWS, labels(3, 2)), Chain)


def test_what_is_more_than_a_chain_is_not():
    watched, slower, own = chain(), chain(), chain()
    watched[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    slower.append(nn.Tanh())
    own[0] = Own()
    for module in (watched, slower, own):
        assert Chain(FlatModel(module, torch.float64), functional.cross_entropy).why_not()
    assert agree(watched, ROWS, labels(3, 2)).name == "vmap"


def test_a_chain_that_goes_through_a_layer_twice():
    twice = nn.Linear(4, 4)
    nn.init.zeros_(twice.weight)  # a gradient that is lost now would be missed later
    module = nn.Sequential(twice, nn.ReLU(), twice, nn.Linear(4, 3))
    chosen = Chain(FlatModel(module, torch.float64), functional.cross_entropy)
    with torch.no_grad():
        chosen._model.params += 0.1 * torch.arange(chosen._model.dim)
    expected = plain(chosen._model, functional.cross_entropy, ROWS, labels(3, 2).zero_())
    pieces, _ = chosen(ROWS, torch.zeros(3, 2, dtype=torch.long))
    for name, wanted in expected.items():
        torch.testing.assert_close(pieces[name].dense(EVERYONE).reshape(wanted.shape), wanted)


@settings(max_examples=30)
@given(
    **SIZES,
    window=st.sampled_from([2, 3, (1, 2), (3, 2)]),
    side=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    relu=st.sampled_from(["before", "after", "none"]),
    ties=st.booleans(),
    groups=st.sampled_from([1, 2]),
)
def test_convolutions_with_pools_are_a_chain(clients, size, seed, window, side, relu, ties, groups):
    torch.manual_seed(seed)
    pool = nn.MaxPool2d(window)
    middle = {"before": [nn.ReLU(), pool], "after": [pool, nn.ReLU(inplace=True)], "none": [pool]}[relu]
    first = nn.Conv2d(2, 4, 3, padding=1, groups=groups)
    second = nn.Conv2d(4, 2, (1, 2), stride=(1, 2), padding=(0, 1), bias=False)
    body = nn.Sequential(first, *middle, nn.Sequential(second, nn.ReLU()), nn.Flatten()).double()
    outputs = body(torch.zeros(1, 2, *side, dtype=torch.float64)).numel()
    x = numbers(clients, size, 2, *side)
    if ties:  # many windows with several largest, and many without one above zero
        x = x.round()
        with torch.no_grad():
            first.weight.copy_(first.weight.sign())
            first.bias.zero_()
    module = nn.Sequential(body, nn.Linear(outputs, 3))
    assert isinstance(agree(module, x, labels(clients, size)), Chain)


@pytest.mark.parametrize(
    "between",
    [
        [nn.MaxPool2d(3, stride=2)],
        [nn.MaxPool2d(2, padding=1)],
        [nn.MaxPool2d(2, ceil_mode=True)],
        [nn.MaxPool2d(2, dilation=2)],
        [nn.MaxPool2d(2), nn.MaxPool2d(2)],  # the second would write over what the first needs
    ],
)
def test_other_pools_are_left_to_autograd(between):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), *between, nn.Flatten()).double()
    module = nn.Sequential(body, nn.Linear(body(numbers(1, 2, 7, 7)).numel(), 3))
    chosen = agree(module, numbers(3, 2, 2, 7, 7), labels(3, 2), path="one pass")
    assert not isinstance(chosen, Chain)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_pool_is_torchs_with_any_number_of_threads(relu, dtype):
    torch.manual_seed(0)
    z = torch.randn(37, 5, 9, 8, dtype=dtype).mul(3).round().to(memory_format=torch.channels_last)
    leaf = z.clone().requires_grad_()
    expected = functional.max_pool2d(functional.relu(leaf) if relu else leaf, 2)
    g = torch.randn_like(expected)
    expected.backward(g)
    pool, before = Pool(nn.MaxPool2d(2), relu=relu), numba.get_num_threads()
    for threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        numba.set_num_threads(threads)
        try:
            out = pool.forward(z)
            found = pool.backward(g, z.clone(memory_format=torch.preserve_format), out)
        finally:
            numba.set_num_threads(before)
        assert torch.equal(out, expected)
        assert torch.equal(found, leaf.grad)


@pytest.mark.parametrize("window", [np.int64(2), (2,), (np.int64(2), 2), [2, 2]])
def test_a_window_may_be_given_in_any_way_that_torch_takes(window):
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(window), nn.Flatten(), nn.Linear(12, 3)).double()
    assert isinstance(agree(module, numbers(2, 3, 2, 6, 6), labels(2, 3)), Chain)


def test_convolutions_that_are_frozen_or_used_twice_or_pad_in_another_way():
    torch.manual_seed(0)
    x, y = numbers(3, 2, 2, 6, 6), labels(3, 2)

    def network(middle):
        parts = [nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), middle, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*parts, nn.Linear(18, 3)).double()

    frozen = nn.Conv2d(2, 2, 3, padding=1).requires_grad_(False)
    assert isinstance(agree(network(frozen), x, y), Chain)
    twice = network(nn.Identity())
    twice[2] = twice[0]
    assert isinstance(agree(twice, x, y), Chain)
    padded = nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect").requires_grad_(False)
    assert not isinstance(agree(network(padded), x, y), Chain)


@pytest.mark.parametrize("way", [Looped, Vmapped])
def test_a_module_in_two_places_is_left_as_it_was(way):
    torch.manual_seed(0)
    shared, tied = nn.Linear(4, 4), nn.Linear(4, 4)
    tied.bias = shared.bias
    module = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), tied, nn.Linear(4, 3)).double()
    model, before = FlatModel(module, torch.float64), [id(p) for p in module.parameters()]
    x, y = numbers(3, 2, 4), labels(3, 2)
    expected = plain(model, functional.cross_entropy, x, y)
    pieces, _ = way(model, functional.cross_entropy)(x, y)
    for name, wanted in expected.items():
        torch.testing.assert_close(pieces[name].dense(EVERYONE).reshape(wanted.shape), wanted)
    assert [id(p) for p in module.parameters()] == before
    assert tied.bias is shared.bias


def test_what_is_not_a_number_does_not_vanish_in_a_pool():
    pool = Pool(nn.MaxPool2d(2), relu=True)
    z = numbers(1, 1, 2, 2)
    z[0, 0, 0, 1] = float("nan")
    assert pool.forward(z).isnan().all()


# Samples that begin to influence each other during a run ---------------------------------------


class Clipped(nn.Module):
    """Scales the outputs of a whole minibatch down once they grow; at first it does nothing."""

    def __init__(self, largest=6.0):
        super().__init__()
        self.layer, self.largest = nn.Linear(4, 3), largest

    def forward(self, x):
        outputs = self.layer(x)
        return outputs * (self.largest / outputs.norm().clamp_min(1e-9)).clamp_max(1.0)


class Experts(nn.Module):
    """A mixture of experts, each of which takes only so many samples of a batch."""

    def __init__(self, experts=3, capacity=0.7):
        super().__init__()
        self.gate, self.capacity = nn.Linear(4, experts), capacity
        self.experts = nn.ModuleList([nn.Linear(4, 3) for _ in range(experts)])

    def forward(self, x):
        scores = self.gate(x).softmax(dim=-1)
        chosen = functional.one_hot(scores.argmax(dim=-1), len(self.experts)).to(x.dtype)
        taken = chosen * (chosen.cumsum(dim=0) <= self.capacity * len(x))
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (outputs * (taken * scores)[..., None]).sum(dim=1)


class Branching(nn.Module):
    """Looks at values in Python, which vmap cannot trace."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        outputs = self.layer(x)
        return outputs / outputs.norm() if float(outputs.detach().norm()) > 4 else outputs


def train(path, model, x, y, *, steps, rate):
    """Gradient descent on the mean of the clients' losses; returns x."""
    for _ in range(steps):
        pieces, _ = path(x, y)
        grads = [pieces[name].dense(EVERYONE).reshape(len(x), -1) for name in model.names]
        with torch.no_grad():
            model.params -= rate * torch.cat(grads, dim=1).mean(dim=0)
    return model.params


def trains_as_the_loop(make, x, y, *, steps=60, rate=0.5):
    """Train by the path that is chosen and by the loop; returns the name of the path."""
    loss = functional.cross_entropy
    model, other = FlatModel(make(), torch.float64), FlatModel(make(), torch.float64)
    before = model.params.clone()
    chosen = choose(model, loss, x[:2], y[:2])
    found = train(chosen, model, x, y, steps=steps, rate=rate)
    expected = train(Looped(other, loss), other, x, y, steps=steps, rate=rate)
    assert float((expected - before).norm()) > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    return chosen.name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kind", "paths"), [(Clipped, {"vmap"}), (Experts, {"vmap", "loop"}), (Branching, {"loop"})]
)
def test_samples_that_interact_later_are_never_mixed(kind, paths, seed):
    def make():
        torch.manual_seed(seed)
        return kind()

    x = torch.randn(4, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y = x[..., :3].argmax(dim=-1)
    assert trains_as_the_loop(make, x, y) in paths


class Backwards(nn.Sequential):
    """A container with a forward of its own."""

    def forward(self, x):
        for part in reversed(list(self)):
            x = part(x)
        return x


def replaced_forward():
    def clipped(self, x):
        outputs = self[0](x)
        return outputs * (9.0 / outputs.norm().clamp_min(1e-9)).clamp_max(1.0)

    module = nn.Sequential(nn.Linear(4, 3))
    module.forward = MethodType(clipped, module)
    return module


def parametrized():
    module = nn.Sequential(nn.Linear(4, 3))
    nn.utils.parametrizations.weight_norm(module[0])
    return module


@pytest.mark.parametrize(
    "module",
    [
        Backwards(nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(Backwards(nn.Tanh(), nn.Linear(4, 3))),
        replaced_forward(),
        parametrized(),
    ],
)
def test_what_has_a_forward_of_its_own_does_not_take_the_one_pass(module):
    chosen = choose(FlatModel(module, torch.float64), functional.cross_entropy, ROWS, labels(3, 2))
    assert chosen.name in ("vmap", "loop")


# The setting engine.gradients ------------------------------------------------------------------


def chosen_for(module, wanted, x=ROWS):
    return choose(FlatModel(module, torch.float64), functional.cross_entropy, x, labels(3, 2), wanted)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [("auto", "one pass (chain)"), ("one-pass", "one pass (chain)"), ("vmap", "vmap"), ("loop", "loop")],
)
def test_the_path_that_is_wanted_is_taken(wanted, name):
    assert chosen_for(chain(), wanted).name == name
    assert agree(chain(), ROWS, labels(3, 2), wanted=wanted).name == name


@pytest.mark.parametrize(
    ("module", "wanted", "reason"),
    [
        (Own(), "one-pass", "without a rule"),
        (Behind(), "one-pass", r"gradient of layer\.weight differs"),
        (Mixing(), "one-pass", r"gradient of layer\.weight differs"),
        (Branching(), "vmap", "vmap"),
        (chain(), "fastest", "must be one of 'auto', 'one-pass', 'vmap', 'loop'"),
    ],
)
def test_a_path_that_does_not_serve_is_refused(module, wanted, reason):
    with pytest.raises(InputError, match=reason) as raised:
        chosen_for(module, wanted)
    (fault,) = raised.value.faults
    assert (fault.field, fault.value) == ("engine.gradients", wanted)
    assert fault.remedy


def test_which_paths_may_draw_random_numbers():
    assert not chosen_for(chain(), "auto").draws
    assert not chosen_for(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), "auto").draws
    assert chosen_for(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), "auto").draws
    assert chosen_for(Tied(), "one-pass", TOKENS).draws  # it might, for all we know
    assert chosen_for(chain(), "vmap").draws
    noisy = lambda out, y: functional.cross_entropy(out + torch.randn_like(out), y)  # noqa: E731
    assert Chain(FlatModel(chain(), torch.float64), noisy).draws
    assert not Chain(FlatModel(chain(), torch.float64), nn.CrossEntropyLoss()).draws


def test_a_module_that_works_on_its_input_in_place():
    module = nn.Sequential(nn.ELU(inplace=True), nn.Linear(4, 3))
    x, y = ROWS.clone(), labels(3, 2)
    chosen = chosen_for(module, "auto", x)
    assert torch.equal(x, ROWS)
    expected = plain(FlatModel(module, torch.float64), functional.cross_entropy, x.clone(), y)
    pieces, _ = chosen(x, y)
    for name, wanted in expected.items():
        torch.testing.assert_close(pieces[name].dense(EVERYONE).reshape(wanted.shape), wanted)


def test_a_gradient_that_is_zero_but_for_rounding():
    """The bias before a normalisation over each channel: its gradient has no scale of its own."""
    torch.manual_seed(0)
    norm = nn.GroupNorm(4, 4)
    module = nn.Sequential(nn.Conv1d(2, 4, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(4 * 28, 3))
    model = FlatModel(module, torch.float64)
    chosen = choose(model, functional.cross_entropy, 100 * numbers(2, 8, 2, 30), labels(2, 8))
    assert chosen.name == "one pass"
