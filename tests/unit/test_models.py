"""Networks: those of the paper, any module as one flat vector, and what cannot be trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Tensor, nn

from flexfl.errors import InputError
from flexfl.models import NETWORKS
from flexfl.models.build import MODELS, build_model
from flexfl.models.build import check_model as check_with_loss
from flexfl.models.flat import FlatModel
from flexfl.streams import Streams


def build(name: str, seed: int = 1, **options: Any) -> nn.Module:
    return build_model(name, options, Streams(seed))


def check_model(module: nn.Module, sample: Tensor, classes: int | None) -> list[Any]:
    """With the default losses and labels that fit."""
    if classes is None:
        labels, loss = torch.zeros(len(sample), 1), nn.functional.mse_loss
    else:
        labels, loss = torch.zeros(len(sample), dtype=torch.long), nn.functional.cross_entropy
    return check_with_loss(module, sample, labels, classes, loss, plain_loss=True)


def flat(module: nn.Module, dtype: torch.dtype = torch.float32) -> np.ndarray:
    return FlatModel(module, dtype).params.numpy()


# The paper's networks ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "sample"), [("mlp", 39_760, (2, 28, 28)), ("cnn", 551_786, (2, 3, 32, 32))]
)
def test_the_networks_of_the_paper(name: str, parameters: int, sample: tuple[int, ...]) -> None:
    module = build(name)
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert FlatModel(module, torch.float32).dim == parameters
    assert tuple(module(torch.zeros(sample)).shape) == (2, 10)
    assert check_model(module, torch.zeros(sample), 10) == []


@pytest.mark.parametrize("name", NETWORKS)
def test_the_initialisation_of_the_paper(name: str) -> None:
    """Kaiming normal and zero bias before a ReLU; PyTorch's own for the last layer."""
    layers = [layer for layer in build(name) if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers[:-1]:
        assert layer.bias is not None
        assert not layer.bias.any()
        inputs = layer.weight[0].numel()
        spread = layer.weight.std().item() / np.sqrt(2 / inputs)
        assert spread == pytest.approx(1, abs=0.1)
        assert layer.weight.abs().max() > 2.5 * layer.weight.std()  # a normal, not a uniform
    last = layers[-1]
    bound = 1 / np.sqrt(last.in_features)
    assert last.weight.abs().max() <= bound
    assert last.bias.abs().max() <= bound
    assert last.bias.any()


def test_a_spec_and_the_family_name_the_same_networks() -> None:
    assert tuple(MODELS.members) == NETWORKS
    assert list(MODELS.parameters("mlp")) == ["inputs", "hidden", "classes"]


def test_options_reach_the_network() -> None:
    assert FlatModel(build("mlp", inputs=4, hidden=3, classes=2), torch.float32).dim == 4 * 3 + 3 + 3 * 2 + 2
    assert tuple(build("cnn", channels=1, side=28, classes=7)(torch.zeros(1, 1, 28, 28)).shape) == (1, 7)


# A flat view -------------------------------------------------------------------------------


class Tied(nn.Module):
    """One weight in two places, and a part that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.Linear(3, 3), nn.Linear(3, 3)
        self.back.weight = self.there.weight
        self.frozen = nn.Linear(3, 2)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.frozen(self.back(self.there(x)))
        return out


def test_the_views_share_memory_with_the_module() -> None:
    module = build("mlp", inputs=4, hidden=3, classes=2)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    before = module(x)
    model = FlatModel(module, torch.float32)
    assert_array_equal(module(x).detach(), before.detach())  # nothing changed by being viewed
    model.params.zero_()
    assert not module(x).any()
    model.params.numpy()[:] = 1.0  # also through NumPy, as the engine writes
    assert all(bool((p == 1).all()) for p in module.parameters())
    with torch.no_grad():
        module[1].bias.fill_(7.0)
    assert (model.params == 7).sum() == 3


def test_the_views_lie_side_by_side_in_order() -> None:
    model = FlatModel(build("mlp", inputs=4, hidden=3, classes=2), torch.float64)
    assert model.names == ("1.weight", "1.bias", "3.weight", "3.bias")
    assert model.shapes == ((3, 4), (3,), (2, 3), (2,))
    assert model.slices == (slice(0, 12), slice(12, 15), slice(15, 21), slice(21, 23))
    model.params.copy_(torch.arange(23, dtype=torch.float64))
    views = model.views()
    for name, parameter in model.module.named_parameters():
        assert_array_equal(views[name], parameter.detach())
        assert views[name].data_ptr() == parameter.data_ptr()
    assert_array_equal(views["3.bias"], [21, 22])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_vector_has_the_type_that_was_asked_for(dtype: torch.dtype) -> None:
    model = FlatModel(build("mlp", inputs=4, hidden=3, classes=2), dtype)
    assert model.params.dtype == dtype
    assert {p.dtype for p in model.module.parameters()} == {dtype}


def test_frozen_parameters_are_left_out_and_tied_ones_are_in_once() -> None:
    module = Tied()
    frozen = module.frozen.weight.detach().clone()
    model = FlatModel(module, torch.float32)
    assert model.names == ("there.weight", "there.bias", "back.bias")
    assert model.dim == 9 + 3 + 3
    model.params.fill_(2.0)
    assert (module.there.weight == 2).all()
    assert module.back.weight is module.there.weight
    assert_array_equal(module.frozen.weight, frozen)
    module(torch.ones(1, 3)).sum().backward()  # autograd still works through the views
    assert module.there.weight.grad is not None
    assert module.frozen.weight.grad is None


# What cannot be trained --------------------------------------------------------------------


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.LazyBatchNorm1d(), nn.SyncBatchNorm(4)])
def test_batch_norm_is_refused_by_name(norm: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Sequential(norm), nn.Linear(4, 2))
    faults = check_model(module, torch.zeros(2, 3), 2)
    (fault,) = (fault for fault in faults if "BatchNorm" in fault.rule)
    assert fault.field == "model.1.0"
    assert "BatchNorm" in fault.value
    assert "GroupNorm" in fault.remedy


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4), nn.LayerNorm(4)])
def test_other_normalisations_are_fine(norm: nn.Module) -> None:
    assert check_model(nn.Sequential(nn.Linear(3, 4), norm, nn.Linear(4, 2)), torch.zeros(2, 3), 2) == []


@pytest.mark.parametrize(
    ("module", "shape"),
    [(nn.Linear(3, 4), (4,)), (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), ()), (nn.Linear(3, 1), (1,))],
)
def test_too_few_outputs_are_refused(module: nn.Module, shape: tuple[int, ...]) -> None:
    (fault,) = check_model(module, torch.zeros(2, 3), 5)
    assert fault.rule == "must return one output for each of the 5 classes"
    assert fault.value == shape
    assert "5" in fault.remedy


def test_more_outputs_than_classes_are_fine_and_numbers_need_none() -> None:
    assert check_model(nn.Linear(3, 4), torch.zeros(2, 3), 2) == []
    assert check_model(nn.Linear(3, 1), torch.zeros(2, 3), None) == []


class Untuned(nn.Module):
    """Not every failure of a forward pass is torch's own."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(3, 2), error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error("first line\nsecond line")


@pytest.mark.parametrize(
    "module",
    [nn.Linear(4, 2), nn.Conv2d(3, 2, 3), *(Untuned(e) for e in (ValueError, TypeError, IndexError))],
)
def test_samples_that_do_not_go_in_are_refused(module: nn.Module) -> None:
    (fault,) = check_model(module, torch.zeros(2, 3), 2)
    assert fault.rule.startswith("must accept samples of the data (")
    assert "\n" not in fault.rule
    assert fault.value == (3,)
    assert fault.remedy


class Pair(nn.Module):
    """Two outputs, as recurrent networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), x


def test_an_output_that_is_no_tensor_is_refused() -> None:
    (fault,) = check_model(Pair(), torch.zeros(2, 3), 2)
    assert fault.field == "model"


@pytest.mark.parametrize("module", [nn.ReLU(), nn.Linear(3, 2).requires_grad_(False)])
def test_nothing_to_train_is_refused(module: nn.Module) -> None:
    (fault,) = check_model(module, torch.zeros(2, 3), 2)
    assert fault.rule == "must have trainable parameters"


def test_faults_of_a_model_are_listed_together() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3)).requires_grad_(False)
    assert [fault.field for fault in check_model(module, torch.zeros(2, 3), 2)] == [
        "model",
        "model.0",
        "model.1",
    ]


def test_checking_leaves_generator_and_gradients_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    before = torch.get_rng_state()
    assert check_model(module, torch.zeros(2, 3), 2) == []
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in module.parameters())


# By name -----------------------------------------------------------------------------------


def test_the_initial_parameters_depend_on_the_seed_only() -> None:
    small = {"inputs": 5, "hidden": 4}
    torch.manual_seed(1)
    first = flat(build("mlp", seed=3, **small)).copy()
    torch.manual_seed(2)
    torch.rand(7)
    assert_array_equal(flat(build("mlp", seed=3, **small)), first)
    assert not np.any(flat(build("mlp", seed=4, **small))[:20] == first[:20])
    assert_array_equal(flat(build("mlp", seed=3, **small), torch.float64), first)


def test_the_global_generator_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    before, expected = torch.get_rng_state(), torch.rand(3)
    torch.set_rng_state(before)
    build("mlp")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.rand(3), expected)


OWN = """
import torch
from torch import nn

def net(width=3):
    return nn.Linear(width, 2)

def number():
    return 3

def broken():
    raise TypeError("inside")

class Net(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that lies in the working folder, which is not on the path."""
    (tmp_path / "own_model_of_this_test.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return "own_model_of_this_test"


def test_a_model_by_import_path(own_module: str) -> None:
    assert build(f"{own_module}:net", width=7).in_features == 7
    assert type(build(f"{own_module}:Net")).__name__ == "Net"
    assert_array_equal(flat(build(f"{own_module}:net", seed=2)), flat(build(f"{own_module}:net", seed=2)))
    assert build("torch.nn:Linear", in_features=2, out_features=3).out_features == 3


@pytest.mark.parametrize(
    ("name", "options", "field", "reason"),
    [
        ("own_model_of_this_test:absent", {}, "model.name", "absent"),
        ("no_such_module_at_all:net", {}, "model.name", "no_such_module_at_all"),
        ("own_model_of_this_test:number", {}, "model.name", "int"),
        ("own_model_of_this_test:net", {"widht": 3}, "model.options.widht", "did you mean width?"),
        ("own_model_of_this_test:net", {"width": "three"}, "model.options", "three"),
        ("mlp", {"hiden": 3}, "model.options.hiden", "did you mean hidden?"),
        ("mlp", {"hidden": "three"}, "model.options.hidden", "three"),
        ("mlp", {"hidden": -1}, "model.options", "-1"),
        ("given:mine.Net", {}, "model.name", "flexfl.simulate"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_model_that_cannot_be_built(name: str, options: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        build(name, **options)
    (fault,) = caught.value.faults
    assert fault.field == field
    assert reason in str(fault)
    assert fault.remedy


@pytest.mark.usefixtures("own_module")
def test_a_failed_build_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    with pytest.raises(InputError, match="inside"):
        build("own_model_of_this_test:broken")
    assert torch.equal(torch.get_rng_state(), before)
