"""What is trained, by whom, and at what cost, as objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from flexfl.arrays import FloatArray, IntArray
from flexfl.control.setup import Setup
from flexfl.data.federated import Federated
from flexfl.learning_rate import Rate
from flexfl.models.build import Accuracy, Loss
from flexfl.models.flat import FlatModel
from flexfl.streams import Streams

Augment = Callable[[Tensor, IntArray, int, Streams, int, int], Tensor]


@dataclass(frozen=True)
class Problem:
    """What is trained, by whom, and at what cost; `average` for the averaged model beside it."""

    model: FlatModel
    loss: Loss
    data: Federated
    setup: Setup
    weights: FloatArray
    learning_rate: Rate
    batch_size: int
    augment: Augment | None = None
    accuracy: Accuracy | None = None
    average: bool = False

    @property
    def streams(self) -> Streams:
        """All the random numbers of the run."""
        return self.setup.streams
