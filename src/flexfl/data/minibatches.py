"""Minibatches: each client iterates over its data in epochs of random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flexfl.arrays import IntArray
from flexfl.streams import Streams


class Minibatches:
    """Minibatches drawn without replacement within an epoch; an incomplete last batch is dropped.

    The order of an epoch comes from the stream (client, epoch); the only state is how many batches
    each client has used. A client with fewer samples than a batch uses all of them every time.

    Args:
        parts: The sample indices of each client.
        batch_size: Samples in a minibatch.
        streams: The run's random streams.
        first: The number of the first client, so that a deployed client draws as in a simulation.
    """

    def __init__(
        self, parts: Sequence[IntArray], batch_size: int, streams: Streams, *, first: int = 0
    ) -> None:
        self._parts, self._streams, self._first = parts, streams, first
        sizes = np.array([len(part) for part in parts])
        self._batch = np.minimum(batch_size, sizes)
        self._per_epoch = sizes // self._batch
        # By batch size: the current epoch of each client as batches; `_row` is a client's row in it.
        self._orders: dict[int, IntArray] = {}
        self._row = np.zeros(len(parts), dtype=np.int64)
        for size in np.unique(self._batch):
            members = (self._batch == size).nonzero()[0]
            self._row[members] = np.arange(len(members))
            longest = int(self._per_epoch[members].max())
            self._orders[int(size)] = np.zeros((len(members), longest, size), dtype=np.int64)
        self._epoch = np.full(len(parts), -1)
        self.used = np.zeros(len(parts), dtype=np.int64)

    def peek(self, client: int, used: int) -> IntArray:
        """Return the sample indices of a client's batch number `used`, (B,)."""
        epoch, place = divmod(used, int(self._per_epoch[client]))
        return np.asarray(self._epoch_order(client, epoch)[place])

    def draw(self, clients: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the next batch of each of `clients`, grouped by B: (clients (M,), samples (M, B))."""
        used = self.used[clients]
        self.used[clients] = used + 1
        yield from self._numbered(clients, used)

    def by_size(self, clients: IntArray) -> Iterator[IntArray]:
        """Yield `clients` grouped by B."""
        for size in self._orders:
            group = clients[self._batch[clients] == size]
            if len(group):
                yield group

    def ahead(self, clients: IntArray, steps: int) -> IntArray:
        """Return the batch so many after the next one of each of `clients`, which have one B: (M, B)."""
        [(_, samples)] = self._numbered(clients, self.used[clients] + steps)
        return samples

    def _numbered(self, clients: IntArray, used: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield batch number `used`, (M,), of each of `clients`, grouped by B."""
        epoch, place = np.divmod(used, self._per_epoch[clients])
        new = (epoch != self._epoch[clients]).nonzero()[0]
        for client, new_epoch in zip(clients[new].tolist(), epoch[new].tolist(), strict=True):
            order = self._epoch_order(client, new_epoch)
            self._orders[order.shape[1]][self._row[client], : len(order)] = order
            self._epoch[client] = new_epoch
        for size, order in self._orders.items():
            group, places = clients, place
            if len(self._orders) > 1:
                chosen = self._batch[clients] == size
                group, places = clients[chosen], place[chosen]
            if len(group):
                yield group, order[self._row[group], places]

    def _epoch_order(self, client: int, epoch: int) -> IntArray:
        """Return the batches of one epoch of one client, (batches, B)."""
        batches, size = int(self._per_epoch[client]), int(self._batch[client])
        stream = self._streams.generator("minibatches", self._first + client, epoch)
        drawn = stream.permutation(self._parts[client])
        return np.asarray(drawn[: batches * size].reshape(batches, size))
