"""Augmentation of images in training: one draw for a client's whole minibatch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from flexfl.arrays import IntArray
from flexfl.streams import Streams

PADDING = 4


def crop_flip(images: Tensor, clients: IntArray, total: int, streams: Streams, iteration: int) -> Tensor:
    """Random crop after padding by 4, and a horizontal flip half of the time; images (M, B, C, H, W).

    Client n takes the n-th of `total` numbers of this iteration's stream.
    """
    drawn = streams.generator("augment", iteration).random((3, total))[:, clients]
    shift = np.minimum((drawn[:2] * (2 * PADDING + 1)).astype(int), 2 * PADDING)
    height, width = images.shape[-2:]
    padded = pad(images, (PADDING,) * 4)
    cropped = torch.stack(
        [
            batch[..., top : top + height, left : left + width]
            for batch, top, left in zip(padded, *shift, strict=True)
        ]
    )
    flip = torch.from_numpy(drawn[2] < 0.5).to(images.device)
    return torch.where(flip.reshape(-1, 1, 1, 1, 1), cropped.flip(-1), cropped)
