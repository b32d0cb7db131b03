"""Image augmentation in training, with one random draw for a client's whole minibatch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flexfl.arrays import IntArray
from flexfl.streams import Streams

PADDING = 4


def crop_flip(
    images: Tensor, clients: IntArray, total: int, streams: Streams, iteration: int, step: int = 0
) -> Tensor:
    """Crop images at random after padding by 4, and flip them horizontally with probability 1/2.

    Args:
        images: Minibatches of some clients, (M, B, C, H, W).
        clients: The numbers of these clients, (M,); client n takes the n-th number of the stream.
        total: Number of all clients.
        streams: The run's random streams.
        iteration: The iteration, which selects the stream.
        step: The local step of the iteration, likewise.
    """
    drawn = streams.generator("augment", iteration, step).random((3, total))[:, clients]
    shift = np.minimum((drawn[:2] * (2 * PADDING + 1)).astype(int), 2 * PADDING) - PADDING
    height, width = images.shape[-2:]
    out = torch.zeros_like(images)
    # Copy the visible part of each image to its new place; the rest is padding.
    for batch, target, down, right, flip in zip(images, out, *shift.tolist(), drawn[2] < 0.5, strict=True):
        top, left = max(0, down), max(0, right)
        tall, wide = max(0, height - abs(down)), max(0, width - abs(right))
        visible = batch[..., top : top + tall, left : left + wide]
        column = min(width, max(0, -right))
        if flip:
            visible, column = visible.flip(-1), width - column - wide
        target[..., max(0, -down) : max(0, -down) + tall, column : column + wide] = visible
    return out
