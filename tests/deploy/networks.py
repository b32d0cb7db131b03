"""Networks of a user's own."""

from __future__ import annotations

import torch
from torch import nn


def narrow() -> nn.Module:
    return nn.Linear(5, 2)


def tiny() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class Idle(nn.Module):
    """Has parameters that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = tiny(), nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.used(x)
        return out


def idle() -> nn.Module:
    return Idle()
