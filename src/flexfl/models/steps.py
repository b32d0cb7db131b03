"""An nn.Sequential as a list of steps, with each max pool fused with the ReLU before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from flexfl.models.pooling import Pool

Step = nn.Module | Pool


def in_order(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the parts of nested nn.Sequential in order; any other module is one part."""
    if type(module) is nn.Sequential and not hooked(module):
        for part in module:
            yield from in_order(part)
    else:
        yield module


def steps_of(module: nn.Module) -> list[Step]:
    """Return steps that, applied in order, compute the same as the module."""
    steps: list[Step] = []
    for part in in_order(module):
        if type(part) is nn.MaxPool2d and Pool.supports(part) and not hooked(part):
            relu = bool(steps) and _is_relu(steps[-1])
            steps[len(steps) - relu :] = [Pool(part, relu=relu)]
        else:
            steps.append(part)
    return steps


def through(steps: Sequence[Step], x: Tensor) -> Tensor:
    """Apply the steps in order and return the output; hooks are called except those of pools."""
    for step in steps:
        x = step.forward(x) if isinstance(step, Pool) else step(x)
    return x


def hooked(module: nn.Module) -> bool:
    """Return whether a module has hooks."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _is_relu(step: Step) -> bool:
    return type(step) is nn.ReLU and not hooked(step)
