"""Conv1d and Conv2d."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flexfl.sim.gradients.pieces import Dense, Found

Conv = nn.Conv1d | nn.Conv2d


def conv_supported(module: Conv) -> bool:
    """Zero padding given as numbers; the other modes pad before they convolve."""
    return module.padding_mode == "zeros" and not isinstance(module.padding, str)


def conv(module: Conv, x: Tensor, g: Tensor, clients: int) -> Found:
    """The library's own weight gradient, over one client's samples at a time.

    Not its bias gradient: with channels last, a sum of ours takes a third of the time.
    """
    shape = (module.stride, module.padding, module.dilation, False, [0] * len(module.stride), module.groups)
    weights = [
        torch.ops.aten.convolution_backward(g_n, x_n, module.weight, None, *shape, [False, True, False])[1]
        for x_n, g_n in zip(x.chunk(clients), g.chunk(clients), strict=True)
    ]
    yield module.weight, Dense(torch.stack(weights))
    if module.bias is not None:
        yield module.bias, Dense(g.movedim(1, -1).reshape(clients, -1, module.out_channels).sum(dim=1))
