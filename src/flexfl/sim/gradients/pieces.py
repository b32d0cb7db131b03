"""Gradients of one parameter by client, computed for a range of clients at a time.

All of them at once would fill memory (M × D numbers) and fall out of the caches on their way to
the residuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Piece(Protocol):
    """The gradients of one parameter for M clients; `dense` returns those of a range, (m, …)."""

    def dense(self, part: slice) -> Tensor: ...


@dataclass(frozen=True)
class Dense:
    """Gradients (M, …) that are already computed."""

    grads: Tensor

    def dense(self, part: slice) -> Tensor:
        return self.grads[part]


@dataclass(frozen=True)
class Outer:
    """gᵀ·x by client, kept as its factors: x (M, K, in) and g (M, K, out).

    An engine can add the products straight into the residuals, without storing them in between.
    """

    x: Tensor
    g: Tensor

    def dense(self, part: slice) -> Tensor:
        return torch.bmm(self.g[part].transpose(1, 2), self.x[part])


@dataclass(frozen=True)
class OverSamples:
    """Σ g over the samples of each client, g (M, K, out)."""

    g: Tensor

    def dense(self, part: slice) -> Tensor:
        return self.g[part].sum(dim=1)


@dataclass(frozen=True)
class Sum:
    """The gradients of a parameter that is used twice."""

    first: Piece
    second: Piece

    def dense(self, part: slice) -> Tensor:
        return self.first.dense(part) + self.second.dense(part)


Pieces = dict[str, Piece]
"""By name of the parameter."""
