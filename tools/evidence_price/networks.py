"""The networks of the self-tuning table besides the paper's: one without and one with convolutions."""

from __future__ import annotations

from torch import nn


def logistic() -> nn.Module:
    """Return logistic regression on 784 pixels, d = 7,850."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def small_cnn() -> nn.Module:
    """Return two convolutions with pooling and one dense layer, d = 9,098."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 10),
    )
