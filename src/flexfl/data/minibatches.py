"""Minibatches: each client goes through its data in epochs of random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flexfl.arrays import IntArray
from flexfl.streams import Streams


class Minibatches:
    """Draws without replacement by epoch; an incomplete last batch is dropped.

    The order of an epoch comes from the stream (client, epoch), and all that is remembered is
    how many batches each client has used. A client with fewer samples than a batch uses them
    all, every time.
    """

    def __init__(self, parts: Sequence[IntArray], batch_size: int, streams: Streams) -> None:
        self._parts, self._streams = parts, streams
        sizes = np.array([len(part) for part in parts])
        self._batch = np.minimum(batch_size, sizes)
        self._sizes = np.unique(self._batch)
        self._per_epoch = sizes // self._batch
        longest = int((self._per_epoch * self._batch).max())
        self._order = np.zeros((len(parts), longest), dtype=np.int64)
        self._epoch = np.full(len(parts), -1)
        self.used = np.zeros(len(parts), dtype=np.int64)

    def peek(self, client: int, used: int) -> IntArray:
        """The samples of that client's batch number `used`."""
        epoch, place = divmod(used, int(self._per_epoch[client]))
        size = int(self._batch[client])
        return np.asarray(self._epoch_order(client, epoch)[place * size : (place + 1) * size])

    def draw(self, clients: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """The next batch of each of `clients`: groups of (clients (M,), samples (M, B)) of equal B."""
        epoch, place = np.divmod(self.used[clients], self._per_epoch[clients])
        begins = epoch != self._epoch[clients]
        for client, wanted in zip(clients[begins], epoch[begins], strict=True):
            order = self._epoch_order(client, wanted)
            self._order[client, : len(order)] = order
        self._epoch[clients] = epoch
        self.used[clients] += 1
        for size in self._sizes:
            group, first = clients, place * size
            if len(self._sizes) > 1:
                chosen = self._batch[clients] == size
                group, first = clients[chosen], first[chosen]
            if len(group):
                yield group, self._order[group[:, None], first[:, None] + np.arange(size)]

    def _epoch_order(self, client: int, epoch: int) -> IntArray:
        part = self._parts[client]
        order = self._streams.generator("minibatches", int(client), int(epoch)).permutation(len(part))
        return np.asarray(part[order[: self._per_epoch[client] * self._batch[client]]])
