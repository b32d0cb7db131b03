"""What is not the same has another identity; what is the same has the same, also in another process."""

from __future__ import annotations

import functools
import logging
import random
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from flexfl.control import Online
from flexfl.identity import identity_of, is_own

SCALE = 2.0


def twice(outputs, labels):
    """Return the loss."""
    return SCALE * functional.cross_entropy(outputs, labels)


def makes(power):
    def loss(outputs, labels):
        return ((outputs - labels) ** power).mean()

    return loss


@dataclass
class Fields:
    rate: float = 0.5
    shape: np.ndarray = field(default_factory=lambda: np.arange(3))
    seen: list = field(default_factory=list)


class Plain:
    def __init__(self, rate):
        self._rate = rate


class Slotted:
    __slots__ = ("rate",)

    def __init__(self, rate):
        self.rate = rate


class Own(nn.Module):
    def __init__(self, power):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.power = power

    def forward(self, x):
        return self.layer(x) ** self.power


def net(*middle):
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Linear(4, 2))


def frozen(value):
    network = net(nn.ReLU())
    network[0].weight.requires_grad_(False).fill_(value)
    network[0].bias.requires_grad_(False).fill_(0.0)
    return network


def replaced(sign):
    network = net()
    network.forward = lambda x: sign * network[1](network[0](x))
    return network


class Private(nn.Linear):
    def __init__(self, slope):
        super().__init__(2, 2)
        self._slope = slope


class Late(Online):
    def __init__(self, k):
        super().__init__()
        object.__setattr__(self, "k", k)


def hooked(sign):
    network = net()
    network.register_forward_pre_hook(lambda module, inputs: tuple(sign * each for each in inputs))
    return network


CLASS_WEIGHTS = {"now": torch.ones(3)}


def weighted(outputs, labels):
    return functional.cross_entropy(outputs, labels, weight=CLASS_WEIGHTS["now"])


def with_weights(value):
    CLASS_WEIGHTS["now"] = torch.full((3,), value)
    return identity_of(weighted, "loss")


def test_what_a_function_uses_counts():
    assert with_weights(1.0) != with_weights(2.0)
    assert with_weights(2.0) == with_weights(2.0)


def test_what_changes_with_the_process_does_not_count():
    """Paths that were used, loggers, and the numbers that torch gives to hooks."""
    path = Path("a/b")
    before = identity_of({"path": path, "log": logging.getLogger("x")}, "p")
    _ = hash(path), str(path), path.parts
    assert identity_of({"path": path, "log": logging.getLogger("x")}, "p") == before
    assert identity_of(hooked(1), "n") == identity_of(hooked(1), "n")


PAIRS = {
    "private attributes of a module": (Private(0.1), Private(5.0)),
    "attributes beside fields": (Late(1), Late(2)),
    "hooks before a pass": (hooked(1), hooked(-1)),
    "generators": (np.random.default_rng(1), np.random.default_rng(2)),
    "generators of Python": (random.Random(1), random.Random(2)),
    "object arrays": (np.array([1, "a"], dtype=object), np.array([2, "a"], dtype=object)),
    "fields": (Fields(0.5), Fields(0.6)),
    "an array": (Fields(), Fields(shape=np.arange(1, 4))),
    "attributes": (Plain(0.5), Plain(0.6)),
    "slots": (Slotted(0.5), Slotted(0.6)),
    "shipped": (Online(tradeoff=0.1), Online(tradeoff=0.2)),
    "losses": (functional.cross_entropy, functional.mse_loss),
    "closures": (makes(2), makes(4)),
    "lambdas": (lambda outputs, labels: outputs.mean(), lambda outputs, labels: outputs.sum()),
    "partial": (functools.partial(twice, labels=1), functools.partial(twice, labels=2)),
    "methods": (Plain(0.5).__init__, Plain(0.6).__init__),
    "modules as losses": (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)),
    "layers": (net(nn.ReLU()), net(nn.Tanh())),
    "settings of layers": (net(nn.Dropout(0.1)), net(nn.Dropout(0.9))),
    "attributes of modules": (Own(1), Own(2)),
    "frozen numbers": (frozen(0.1), frozen(0.2)),
    "a mode": (net(nn.Dropout(0.1)), net(nn.Dropout(0.1).eval())),
    "a forward of its own": (replaced(1), replaced(-1)),
}


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_other_things_differ(one, other):
    assert identity_of(one, "thing") != identity_of(other, "thing")


SAME = {
    "fields": Fields,
    "attributes": lambda: Plain(0.5),
    "a function": lambda: twice,
    "a closure": lambda: makes(3),
    "a network, initialised anew": lambda: net(nn.ReLU(), nn.Dropout(0.3)),
    "a module of one's own": lambda: Own(2),
    "an object without a name": lambda: {"at": object()},
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_the_same_thing_is_the_same(make):
    assert identity_of(make(), "thing") == identity_of(make(), "thing")


def test_differences_have_names():
    one, other = (identity_of(Fields(rate), "policy") for rate in (0.5, 0.6))
    differ = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
    assert differ == {"policy.rate": ("0.5", "0.6")}
    one, other = (identity_of(net(layer), "network") for layer in (nn.ReLU(), nn.Tanh()))
    assert [name for name in one if one[name] != other[name]] == ["network.1"]
    assert "ReLU(" in one["network.1"]


def test_something_that_holds_itself_or_very_much():
    ring = Plain(0.5)
    ring.ring = ring
    assert identity_of(ring, "a")["a.ring"] == "itself"
    many = identity_of({number: [object()] for number in range(1000)}, "many")
    assert len(many) == 1


def test_library_code_goes_by_its_name():
    assert not is_own(nn.ReLU())
    assert not is_own(Online())
    assert not is_own(functional.cross_entropy)
    assert is_own(Own(1))
    assert is_own(twice)


SOURCE = """
    from torch import nn
    SCALE = {scale}
    def helper(x):
        return {helper} * x
    def loss(outputs, labels):  # {comment}
        '''{comment}'''
        return SCALE * helper(outputs - labels).mean()
    class Net(nn.Module):
        rate = {rate}
        def forward(self, x):
            return {forward}
    class Child(Net):
        pass
"""
SETTINGS = {"scale": 2, "helper": 3, "comment": "a word", "rate": 0.1, "forward": "x"}
SHOW = "import own, json; from flexfl.identity import identity_of as i; " + (
    "print(json.dumps([i(own.loss, 'l'), i(own.Child(), 'n'), i(own.Child, 'c')]))"
)


def shown(folder: Path, **changed):
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(textwrap.dedent(SOURCE).format(**{**SETTINGS, **changed}))
    command = [sys.executable, "-B", "-c", SHOW]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_code_in_other_processes(tmp_path):
    """Comments and docstrings do not count; statements do, and the constants and helpers they use."""
    first = shown(tmp_path / "a")
    assert shown(tmp_path / "b", comment="another word") == first
    for number, change in enumerate(({"scale": 4}, {"helper": 5}, {"rate": 0.2}, {"forward": "-x"})):
        assert shown(tmp_path / str(number), **change) != first, change


def test_a_tensor_of_another_kind():
    assert identity_of(torch.ones(2, dtype=torch.bfloat16), "t") != identity_of(torch.zeros(2), "t")
    assert identity_of(torch.tensor(2.5), "t") == {"t": "2.5"}
