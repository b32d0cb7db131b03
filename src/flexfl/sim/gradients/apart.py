"""Which modules are known to keep the samples of a batch apart.

The one pass puts the samples of many clients in one batch, so it is right only for modules in
which no sample can influence another, whatever the parameters are. That is decided by what a
module is: layers of exactly these types, in nothing but nn.Sequential, with nothing attached to
them. It cannot be decided by a trial, since samples may begin to interact later in a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn import functional

from flexfl.sim.gradients.layers import embedding_supported

_ANY_OPTIONS: frozenset[type[nn.Module]] = frozenset(
    {
        *(nn.Sequential, nn.Identity, nn.Linear, nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
        *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Tanhshrink, nn.Threshold),
        *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Hardshrink, nn.Softshrink),
        *(nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
    }
)
"""Types that keep samples apart whatever their options are."""

_DROPOUTS = frozenset(
    {nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout}
)


def _inner_dim(dim: Any, sample_dims: int) -> bool:
    """Return whether `dim` is never that of the samples.

    The last is not if samples have a shape: no known layer gives fewer than two dimensions then.
    """
    return isinstance(dim, int) and (dim >= 1 or (dim == -1 and sample_dims >= 1))


_BY_OPTIONS: dict[type[nn.Module], Callable[[Any, int], bool]] = {
    nn.Embedding: lambda layer, sample_dims: embedding_supported(layer),
    nn.Flatten: lambda layer, sample_dims: layer.start_dim >= 1,
    nn.Unflatten: lambda layer, sample_dims: _inner_dim(layer.dim, sample_dims),
    nn.Softmax: lambda layer, sample_dims: _inner_dim(layer.dim, sample_dims),
    nn.Softmin: lambda layer, sample_dims: _inner_dim(layer.dim, sample_dims),
    nn.LogSoftmax: lambda layer, sample_dims: _inner_dim(layer.dim, sample_dims),
    nn.GLU: lambda layer, sample_dims: _inner_dim(layer.dim, sample_dims),
    nn.MaxPool1d: lambda layer, sample_dims: not layer.return_indices,
    nn.MaxPool2d: lambda layer, sample_dims: not layer.return_indices,
    nn.AdaptiveMaxPool1d: lambda layer, sample_dims: not layer.return_indices,
    nn.AdaptiveMaxPool2d: lambda layer, sample_dims: not layer.return_indices,
}
"""Types that keep samples apart under some options: (layer, dimensions of a sample) → bool."""


def why_not_apart(module: nn.Module, sample_dims: int) -> str | None:
    """Say why samples could influence each other in `module`.

    Args:
        module: the whole network.
        sample_dims: the number of dimensions of one sample, without that of the batch.

    Returns:
        The first submodule that is not known to keep samples apart, in words; None if all are.
    """
    for name, part in module.named_modules():
        kind = type(part)
        label = f"{name} ({kind.__name__})" if name else kind.__name__
        known = kind in _ANY_OPTIONS or kind in _DROPOUTS
        if not known and kind not in _BY_OPTIONS:
            return f"{label} is not a type of layer that is known to keep samples apart"
        if not known and not _BY_OPTIONS[kind](part, sample_dims):
            return f"{label} may not keep samples apart with its options"
        if kind is not nn.Sequential and part._modules:
            return f"{label} holds modules of its own"
        if not unmodified(part):
            return f"{label} has hooks, or a method that was replaced"
    return None


def unmodified(part: nn.Module) -> bool:
    """Return whether `part` computes what its type says: no hooks, no method replaced on the instance."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    replaced = (callable(getattr(type(part), attribute, None)) for attribute in vars(part))
    return not any(hooks) and not any(replaced)


def may_draw(module: nn.Module) -> bool:
    """Return whether a pass through `module` may draw random numbers."""
    known = _ANY_OPTIONS | _BY_OPTIONS.keys()
    return not all(type(part) in known and unmodified(part) for part in module.modules())


def loss_may_draw(loss: Any) -> bool:
    """Return whether `loss` may draw random numbers; torch's own losses do not."""
    if isinstance(loss, nn.Module):
        return type(loss).__module__ != nn.CrossEntropyLoss.__module__ or not unmodified(loss)
    return loss is not functional.cross_entropy and loss is not functional.mse_loss
