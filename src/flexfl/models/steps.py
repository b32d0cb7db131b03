"""A plain nn.Sequential as the list of its steps, with each max pool and the ReLU before it as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from flexfl.models.pooling import Pool

Step = nn.Module | Pool


def in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The parts of nested nn.Sequential, one after the other; any other module is one part."""
    if type(module) is nn.Sequential and not hooked(module):
        for part in module:
            yield from in_order(part)
    else:
        yield module


def steps_of(module: nn.Module) -> list[Step]:
    """Applied one after the other they give what the module gives."""
    steps: list[Step] = []
    for part in in_order(module):
        if type(part) is nn.MaxPool2d and Pool.supports(part) and not hooked(part):
            relu = bool(steps) and _is_relu(steps[-1])
            steps[len(steps) - relu :] = [Pool(part, relu=relu)]
        else:
            steps.append(part)
    return steps


def through(steps: Sequence[Step], x: Tensor) -> Tensor:
    """The last step's output; hooks of other steps than pools are called."""
    for step in steps:
        x = step.forward(x) if isinstance(step, Pool) else step(x)
    return x


def hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _is_relu(step: Step) -> bool:
    return type(step) is nn.ReLU and not hooked(step)
