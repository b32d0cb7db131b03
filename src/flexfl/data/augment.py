"""Augmentation of images in training: one draw for a client's whole minibatch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flexfl.arrays import IntArray
from flexfl.streams import Streams

PADDING = 4


def crop_flip(images: Tensor, clients: IntArray, total: int, streams: Streams, iteration: int) -> Tensor:
    """Random crop after padding by 4, and a horizontal flip half of the time; images (M, B, C, H, W).

    Client n takes the n-th of `total` numbers of this iteration's stream.
    """
    drawn = streams.generator("augment", iteration).random((3, total))[:, clients]
    shift = np.minimum((drawn[:2] * (2 * PADDING + 1)).astype(int), 2 * PADDING) - PADDING
    height, width = images.shape[-2:]
    out = torch.zeros_like(images)
    # What is seen of each image goes where it is seen; the rest is padding.
    for batch, into, down, right, flip in zip(images, out, *shift.tolist(), drawn[2] < 0.5, strict=True):
        top, left = max(0, down), max(0, right)
        tall, wide = max(0, height - abs(down)), max(0, width - abs(right))
        seen = batch[..., top : top + tall, left : left + wide]
        at = min(width, max(0, -right))
        if flip:
            seen, at = seen.flip(-1), width - at - wide
        into[..., max(0, -down) : max(0, -down) + tall, at : at + wide] = seen
    return out
