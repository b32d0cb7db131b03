"""How many samples of each class every client holds; stored with a run, so that reports need no data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import IntArray
from flexfl.errors import RunDirectoryError


@dataclass(frozen=True)
class Partition:
    """The partition of one run.

    Attributes:
        sizes: Number of samples of each client, (N,).
        classes: Number of classes; None if labels are not classes.
        held: A row (client, class, samples) for each class that a client has, (K, 3); never more
            rows than samples, however many clients and classes there are.
    """

    sizes: IntArray
    classes: int | None
    held: IntArray

    @classmethod
    def of(cls, parts: Sequence[IntArray], labels: NDArray[Any], classes: int | None) -> Partition:
        """Return the partition given by each client's sample indices.

        Args:
            parts: The sample indices of each client.
            labels: The labels of all samples, (S, …); read only if they are classes.
            classes: Number of classes; None if labels are not classes.
        """
        sizes = np.array([len(part) for part in parts])
        if classes is None:
            return cls(sizes, None, np.empty((0, 3), dtype=np.int64))
        client = np.repeat(np.arange(len(parts)), sizes)
        pairs, samples = np.unique(client * classes + labels[np.concatenate(parts)], return_counts=True)
        return cls(sizes, classes, np.stack([pairs // classes, pairs % classes, samples], axis=1))

    def to_json(self) -> str:
        """Return JSON with a line per client: {class: samples}, or its number of samples."""
        clients: list[Any] = self.sizes.tolist()
        if self.classes is not None:
            clients = [{} for _ in clients]
            for client, label, samples in self.held.tolist():
                clients[client][label] = samples
        lines = ",\n".join(json.dumps(client, separators=(",", ":")) for client in clients)
        return f'{{"classes":{json.dumps(self.classes)},"clients":[\n{lines}\n]}}\n'

    @classmethod
    def read(cls, path: Path) -> Partition:
        """Read a file that `to_json` wrote.

        Raises:
            RunDirectoryError: The file cannot be read.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            classes, clients = content["classes"], content["clients"]
            if classes is None:
                return cls(np.array(clients, dtype=np.int64), None, np.empty((0, 3), dtype=np.int64))
            held = np.array(
                [
                    (client, int(label), samples)
                    for client, of_client in enumerate(clients)
                    for label, samples in of_client.items()
                ],
                dtype=np.int64,
            ).reshape(-1, 3)
            sizes = np.bincount(held[:, 0], weights=held[:, 2], minlength=len(clients))
            return cls(sizes.astype(np.int64), int(classes), held)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            remedy = "restore it, or delete it: reports then omit the partition"
            raise RunDirectoryError(f"{path} cannot be read ({error}); {remedy}") from error
