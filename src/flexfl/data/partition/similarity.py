"""Similarity partition: a mixture of IID data and data sorted by label."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from flexfl.arrays import IntArray
from flexfl.data.partition.classes import Labels, need_classes
from flexfl.parameters import Rule

_SHARE = Rule(
    "must be in [0, 1]",
    lambda share: 0 <= share <= 1,
    "0 sorts by label, 1 is iid",
    example="similarity = 0.1",
)


def similarity(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    similarity: Annotated[float, _SHARE],
) -> list[IntArray]:
    """Make a share s = `similarity` of each client's data IID; split the rest in the order of labels.

    This is the "s % similarity" of the SCAFFOLD paper (Karimireddy et al., 2020). All clients have
    equally many samples, within one, and ⌊s·S + ½⌋ of all S are IID.
    """
    need_classes(labels, "similarity")
    ends = np.cumsum([len(part) for part in np.array_split(labels, clients)])
    # Rounded ends instead of rounded sizes: small clients would all round the same way.
    mixed = np.floor(similarity * ends + 0.5).astype(np.int64)
    order = generator.permutation(len(labels))
    common, rest = order[: mixed[-1]], order[mixed[-1] :]
    rest = rest[np.argsort(labels[rest], kind="stable")]
    return [
        np.concatenate(pair)
        for pair in zip(np.split(common, mixed[:-1]), np.split(rest, (ends - mixed)[:-1]), strict=True)
    ]
