"""The paper's two networks (Section V-A), with the paper's initialisation."""

from __future__ import annotations

from torch import nn


def _followed_by_relu(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """Initialise a layer that is followed by a ReLU."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int = 784, hidden: int = 50, classes: int = 10) -> nn.Module:
    """Return the network 784–50–10 with ReLU; it has d = 39,760 parameters."""
    return nn.Sequential(
        nn.Flatten(),
        _followed_by_relu(nn.Linear(inputs, hidden)),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def cnn(channels: int = 3, side: int = 32, classes: int = 10) -> nn.Module:
    """Return two convolutions with pooling and three dense layers; d = 551,786 on CIFAR-10."""
    return nn.Sequential(
        _followed_by_relu(nn.Conv2d(channels, 32, 3, padding=1)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _followed_by_relu(nn.Conv2d(32, 32, 3, padding=1)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        _followed_by_relu(nn.Linear(32 * (side // 4) ** 2, 256)),
        nn.ReLU(),
        _followed_by_relu(nn.Linear(256, 64)),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
