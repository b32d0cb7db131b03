"""The networks of the self-tuning table besides the paper's: one without a hidden layer and one with two."""

from __future__ import annotations

from torch import nn


def logistic() -> nn.Module:
    """Return logistic regression on 784 pixels, d = 7,850."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def deep() -> nn.Module:
    """Return 784–64–32–10 with ReLU, d = 52,650."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
