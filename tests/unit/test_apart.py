"""Modules that are known to keep samples apart: those that are do, and nothing else is let in."""

from __future__ import annotations

from types import MethodType

import pytest
import torch
from torch import Tensor, nn

from flexfl.sim.gradients.apart import _ANY_OPTIONS, _BY_OPTIONS, _DROPOUTS, unmodified, why_not_apart

VECTORS, IMAGES, SEQUENCES = (5, 6), (5, 4, 6, 6), (5, 4, 6)
KNOWN: dict[type[nn.Module], tuple[nn.Module, tuple[int, ...]]] = {
    nn.Sequential: (nn.Sequential(nn.Linear(6, 3), nn.Sequential(nn.Tanh())), VECTORS),
    nn.Linear: (nn.Linear(6, 3), VECTORS),
    nn.Conv1d: (nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"), SEQUENCES),
    nn.Conv2d: (nn.Conv2d(4, 3, 3, padding="same"), IMAGES),
    nn.LayerNorm: (nn.LayerNorm((6, 6)), IMAGES),
    nn.GroupNorm: (nn.GroupNorm(2, 4), IMAGES),
    nn.Threshold: (nn.Threshold(0.1, 2.0), VECTORS),
    nn.Dropout2d: (nn.Dropout2d(), IMAGES),
    nn.Dropout3d: (nn.Dropout3d(), IMAGES),
    nn.AvgPool1d: (nn.AvgPool1d(2), SEQUENCES),
    nn.AvgPool2d: (nn.AvgPool2d(2), IMAGES),
    nn.AdaptiveAvgPool1d: (nn.AdaptiveAvgPool1d(2), SEQUENCES),
    nn.AdaptiveAvgPool2d: (nn.AdaptiveAvgPool2d(2), SEQUENCES),  # taken as channels: kept apart, too
    nn.Embedding: (nn.Embedding(9, 3, padding_idx=0), VECTORS),
    nn.Flatten: (nn.Flatten(1, 2), IMAGES),
    nn.Unflatten: (nn.Unflatten(-1, (2, 3)), VECTORS),
    nn.Softmax: (nn.Softmax(dim=-1), VECTORS),
    nn.Softmin: (nn.Softmin(dim=1), VECTORS),
    nn.LogSoftmax: (nn.LogSoftmax(dim=2), IMAGES),
    nn.GLU: (nn.GLU(), VECTORS),
    nn.MaxPool1d: (nn.MaxPool1d(2), SEQUENCES[1:]),
    nn.MaxPool2d: (nn.MaxPool2d(2), IMAGES),
    nn.AdaptiveMaxPool1d: (nn.AdaptiveMaxPool1d(2), SEQUENCES),
    nn.AdaptiveMaxPool2d: (nn.AdaptiveMaxPool2d(2), IMAGES),
}


@pytest.mark.parametrize("kind", sorted(_ANY_OPTIONS | _BY_OPTIONS.keys() | _DROPOUTS, key=str))
def test_no_sample_influences_another(kind: type[nn.Module]) -> None:
    """The output for one sample has no gradient by the others, and does not change with them."""
    module, shape = KNOWN.get(kind, (None, VECTORS))
    module = (kind() if module is None else module).double().eval()
    assert why_not_apart(module, len(shape) - 1) is None
    torch.manual_seed(0)
    if kind is nn.Embedding:
        x = torch.randint(9, shape)
        assert torch.equal(module(x)[2:3], module(x[2:3]))
        return

    def first(x: Tensor) -> Tensor:
        out: Tensor = module(x)[0]
        return out

    x = torch.randn(*shape, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(first, x)
    by_sample = jacobian.flatten(0, jacobian.ndim - x.ndim - 1).movedim(1, 0)
    assert by_sample[0].any()
    assert not by_sample[1:].any()
    others = torch.cat([x[:1], 100 * torch.randn_like(x[1:])])
    torch.testing.assert_close(first(others), first(x), rtol=0, atol=0)


class Subclass(nn.Linear):
    pass


def hooked(register: str) -> nn.Module:
    layer = nn.Linear(3, 3)
    getattr(layer, register)(lambda *given: None)
    return layer


def with_method(name: str) -> nn.Module:
    layer = nn.Conv2d(3, 3, 1)
    setattr(layer, name, MethodType(lambda self, *given: given[0] - given[0].mean(), layer))
    return layer


def with_child() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.child = nn.Linear(3, 3)
    return layer


OTHERS = {
    "a subclass": (Subclass(3, 3), "Subclass"),
    "batch normalisation": (nn.BatchNorm1d(3), "BatchNorm1d"),
    "a container of another type": (nn.ModuleList([nn.Linear(3, 3)]), "ModuleList"),
    "attention": (nn.MultiheadAttention(4, 2), "MultiheadAttention"),
    "softmax over samples": (nn.Softmax(dim=0), "options"),
    "softmax over whatever torch picks": (nn.Softmax(dim=None), "options"),
    "softmax counted from the end": (nn.LogSoftmax(dim=-2), "options"),
    "samples flattened": (nn.Flatten(0), "options"),
    "flattened from the end": (nn.Flatten(-2), "options"),
    "samples unflattened": (nn.Unflatten(0, (2, 2)), "options"),
    "indices of a pool": (nn.MaxPool2d(2, return_indices=True), "options"),
    "gradients scaled by frequency": (nn.Embedding(3, 3, scale_grad_by_freq=True), "options"),
    "a child": (with_child(), "modules of its own"),
    "a forward of its own": (with_method("forward"), "replaced"),
    "a convolution of its own": (with_method("_conv_forward"), "replaced"),
    "a forward hook": (hooked("register_forward_hook"), "hooks"),
    "a hook before": (hooked("register_forward_pre_hook"), "hooks"),
    "a backward hook": (hooked("register_full_backward_hook"), "hooks"),
    "a hook before backward": (hooked("register_full_backward_pre_hook"), "hooks"),
    "a parametrization": (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "ParametrizedLinear"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_named(name: str) -> None:
    module, reason = OTHERS[name]
    alone, within = why_not_apart(module, 2), why_not_apart(nn.Sequential(nn.Tanh(), module), 2)
    assert alone is not None
    assert within is not None
    assert reason in alone
    assert within.startswith(f"1 ({type(module).__name__})")


def test_the_last_dimension_of_samples_without_a_shape_is_that_of_the_batch() -> None:
    assert why_not_apart(nn.Softmax(dim=-1), 1) is None
    assert why_not_apart(nn.Softmax(dim=-1), 0) is not None


def test_a_module_fresh_from_torch_is_unmodified() -> None:
    for module, _ in KNOWN.values():
        assert all(unmodified(part) for part in module.modules())
