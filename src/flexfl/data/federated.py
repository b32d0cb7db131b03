"""Federated data: samples, labels, and which of them each client holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flexfl.arrays import FloatArray, IntArray
from flexfl.data import partition as partitions
from flexfl.data.checks import (
    as_tensor,
    finite,
    label_faults,
    non_finite,
    other_labels,
    shown,
)
from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import as_number
from flexfl.streams import Streams
from flexfl.trees import Tree, joined, leaves, shapes, size

Source = Any
"""Samples: a pair (x, y) of tensors or arrays with one row per sample; a torch Dataset, a DataLoader, a
HuggingFace `datasets.Dataset`, a list of samples, or a dict of columns. Features may be a dict or tuple."""

Pair = tuple[Any, Any]
"""Features and labels, with one row per sample."""


@dataclass(frozen=True)
class Federated:
    """A dataset in memory and its partition; create it with `split` or `of_clients`.

    Features are one tensor, or a tree of them (`flexfl.trees`): a model is called as `model(x)` with a
    tensor, `model(**x)` with a dict and `model(*x)` with a tuple. Samples without labels of their own have
    `train_y is train_x`: the loss then gets outputs and the whole minibatch.
    """

    train_x: Tree
    train_y: Tree
    test_x: Tree | None
    test_y: Tree | None
    parts: tuple[IntArray, ...]
    content: str | None = None
    """A digest of the tensors if it is known; else `fingerprint` reads them."""
    recipe: Mapping[str, Any] | None = None
    """How `split` has partitioned them; None for parts that were given."""

    @classmethod
    def split(
        cls,
        train: Source,
        test: Source | None = None,
        *,
        clients: int | None = None,
        partition: str | Mapping[str, Any] = "iid",
        seed: int = 1,
        features: str | Sequence[str] | None = None,
        label: str | None = None,
        columns: Mapping[str, Any] | None = None,
        content: str | None = None,
    ) -> Federated:
        """Partition training data over clients; the test data are not partitioned.

        What is not an array is read once, into memory: of a Dataset with random augmentations each sample
        is drawn once for the whole run. Of a DataLoader its dataset is taken, and its collate_fn if it has
        an own one, which is called with all samples at once; the run decides on minibatches.

        Args:
            train: Samples for training: (x, y), a Dataset of (x, y) or of dicts, a DataLoader, a
                HuggingFace dataset, a list of samples, or a dict of columns.
            test: Samples for testing.
            clients: Number of clients; may be left out if the partition is by a column.
            partition: As in a spec: a name, or {"kind": "dirichlet", "alpha": 0.3}.
            seed: The seed of the partition.
            features: Of samples that are dicts: what the model is called with. A name gives it that tensor;
                a list of names, keywords. By default all but the label.
            label: Of samples that are dicts: what the loss compares outputs with. Without it the loss gets
                the whole minibatch, and by default is the one that the model returns.
            columns: One value per training sample, by name, for partitions by a column. The columns of the
                training data are there, too.
            content: A digest of the data if it is known.

        Raises:
            InputError: The data or the number of clients are not valid.
        """
        recipe = partitions.PARTITIONS.resolve(partition, partitions.FIELD)  # its faults before the data's
        column = partitions.column_of(partition)
        train_x, train_y, found = _read(train, "train", features, label)
        samples = size(train_x)
        whole = isinstance(clients, int | np.integer) and not isinstance(clients, bool)
        if clients is not None and (not whole or clients < 1):
            remedy = as_number(clients) or "give the number N"
            raise InputError([Fault("data.clients", "must be a whole number ≥ 1", clients, remedy)])
        if clients is not None and clients > samples:
            rule = f"must be at most the number of training samples, {samples}"
            raise InputError([Fault("data.clients", rule, clients, "use fewer clients or more data")])
        # Before the partition, which may go by labels.
        if isinstance(train_y, Tensor) and (faults := label_faults(train_y, "labels")):
            raise InputError(faults, "the data")
        generator = Streams(seed).generator("partition")
        values = None if column is None else _column(column, {**(columns or {})}, found)
        parts = partitions.split(partition, _labels(train_x, train_y), clients, generator, values)
        given = None if test is None else _read(test, "test", features, label)[:2]
        return replace(cls._checked(train_x, train_y, given, parts, content), recipe=recipe)

    @classmethod
    def of_clients(
        cls,
        clients: Sequence[Source],
        test: Source | None = None,
        *,
        features: str | Sequence[str] | None = None,
        label: str | None = None,
    ) -> Federated:
        """Combine the samples of each client, given in the order of the clients.

        Args:
            clients: Each client's samples, as `split` takes them.
            test: Samples for testing.
            features: As in `split`.
            label: As in `split`.

        Raises:
            InputError: The data are not valid, or their shapes differ between clients.
        """
        if isinstance(clients, Mapping):
            rule = "must be a list with a pair for each client"
            remedy = "give list(clients.values()); the order numbers the clients"
            raise InputError([Fault("data.clients", rule, type(clients).__name__, remedy)])
        if isinstance(clients, tuple) and any(hasattr(part, "shape") for part in clients):
            remedy = "give a list of pairs, [(x, y), …]"
            raise InputError(
                [Fault("data.clients", "must be a list with a pair for each client", "a pair", remedy)]
            )
        if not len(clients):
            raise InputError([Fault("data.clients", "must be at least one", 0, "give each client's data")])
        pairs = [_read(pair, f"client {n}", features, label)[:2] for n, pair in enumerate(clients)]
        faults = []
        like = pairs[0][1]
        for n, (own_x, labels) in enumerate(pairs):
            if labels is own_x or not isinstance(labels, Tensor) or not isinstance(like, Tensor):
                continue
            if labels.is_floating_point() != like.is_floating_point():
                rule = f"must have labels of {like.dtype} like client 0"
                faults.append(Fault(f"data of client {n}", rule, str(labels.dtype), "convert them"))
            faults += label_faults(labels, f"labels of client {n}")
        for what, place in (("features", 0), ("labels", 1)):
            expected = shapes(pairs[0][place])
            rule = f"must have {what} of shape {shown(expected)} like client 0"
            faults += [
                Fault(f"data of client {n}", rule, shown(shapes(pair[place])), "reshape them")
                for n, pair in enumerate(pairs)
                if shapes(pair[place]) != expected and not (place and pair[1] is pair[0])
            ]
        if faults:
            raise InputError(faults, "the data")
        ends = np.cumsum([size(x) for x, _ in pairs])
        parts = tuple(np.arange(end - size(x), end) for (x, _), end in zip(pairs, ends, strict=True))
        all_x = joined([x for x, _ in pairs])
        all_y = all_x if pairs[0][1] is pairs[0][0] else joined([y for _, y in pairs])
        given = None if test is None else _read(test, "test", features, label)[:2]
        return cls._checked(all_x, all_y, given, parts)

    @classmethod
    def _checked(
        cls, x: Tree, y: Tree, test: Pair | None, parts: tuple[IntArray, ...], content: str | None = None
    ) -> Federated:
        faults = [
            Fault(f"data of client {n}", "must have at least one sample", 0, "remove that client")
            for n, part in enumerate(parts)
            if not len(part)
        ]
        if content is None:
            faults += non_finite(x, parts)
            if y is not x and not isinstance(y, Tensor):
                faults += non_finite(y, parts)
        test_x, test_y = (None, None) if test is None else test
        if test_x is not None and shapes(test_x) != shapes(x):
            rule = f"must have features of shape {shown(shapes(x))}, as in training"
            faults.append(Fault("data (test)", rule, shown(shapes(test_x)), "reshape them"))
        if test_y is not None and not isinstance(y, Tensor) and shapes(test_y) != shapes(y) and y is not x:
            rule = f"must have labels of shape {shown(shapes(y))}, as in training"
            faults.append(Fault("data (test)", rule, shown(shapes(test_y)), "reshape them"))
        if content is None and test_x is not None and not all(finite(t).all() for _, t in leaves(test_x)):
            faults.append(Fault("data (test)", "must be finite", "NaN or infinity", "clean it"))
        if isinstance(y, Tensor) and isinstance(test_y, Tensor) and y is not x:
            faults += label_faults(test_y, "test labels") + other_labels(test_y, y)
        if faults:
            raise InputError(faults, "the data")
        return cls(x, y, test_x, test_y, parts, content)

    @property
    def plain(self) -> bool:
        """Whether features and labels are one tensor each."""
        both = isinstance(self.train_x, Tensor) and isinstance(self.train_y, Tensor)
        return both and self.train_y is not self.train_x

    @property
    def clients(self) -> int:
        """The number of clients N."""
        return len(self.parts)

    @property
    def sizes(self) -> IntArray:
        """The number of samples of each client, (N,)."""
        return np.array([len(part) for part in self.parts])

    @property
    def classes(self) -> int | None:
        """The number of classes; None if labels are not classes."""
        y, alone = self.train_y, self.train_y is not self.train_x
        if not (isinstance(y, Tensor) and alone) or y.ndim != 1 or y.is_floating_point():
            return None
        largest = [int(labels.max()) for labels in (self.train_y, self.test_y) if labels is not None]
        return max(largest) + 1

    def weights(self, kind: str | list[float]) -> FloatArray:
        """Return the weights w, (N,), with sum 1.

        Args:
            kind: "equal", "samples" (proportional to each client's samples), or a list.
        """
        if isinstance(kind, str):
            raw = self.sizes.astype(np.float64) if kind == "samples" else np.ones(self.clients)
        else:
            raw = np.asarray(kind, dtype=np.float64)
        return np.asarray(raw / raw.sum())

    def fingerprint(self) -> str:
        """Return a digest of data and partition, which is checked when a run is resumed."""
        digest = hashlib.blake2b(self._samples_digest.encode(), digest_size=16)
        digest.update(self.sizes.tobytes())
        for part in self.parts:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def identity(self) -> dict[str, str]:
        """Return what two seeds of a run have in common: the samples, and how they were split.

        Parts that `split` has not drawn count as they are.
        """
        found = {"data.samples": self._samples_digest[:12]}
        recipe = self.recipe or {}
        if not recipe or "column" in recipe:
            found["data.parts"] = self.fingerprint()[:12]
        return found | {f"data.split.{name}": str(value) for name, value in recipe.items()}

    @cached_property
    def _samples_digest(self) -> str:
        if self.content is not None:
            return self.content
        digest = hashlib.blake2b(digest_size=16)
        for tree in (self.train_x, self.train_y, self.test_x, self.test_y):
            for name, tensor in () if tree is None else leaves(tree):
                digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()


def _read(
    source: Source, what: str, features: str | Sequence[str] | None, label: str | None
) -> tuple[Tree, Tree, Mapping[str, Any]]:
    """Return features, labels and columns of samples."""
    if not _is_pair(source) or features is not None or label is not None:
        from flexfl.data import samples

        return samples.read(source, what, features=features, label=label)
    return *_tensors(source, what), {}


def _is_pair(source: Source) -> bool:
    """Return whether samples are given as one array of features and one of labels, or as nothing known."""
    if isinstance(source, tuple):
        return not any(_is_tree(part) for part in source)
    if isinstance(source, list):  # [x, y], unless it lists samples
        first = source[0] if source else None
        return not isinstance(first, Mapping | tuple)
    return not hasattr(source, "__getitem__") and not hasattr(source, "__iter__")


def _is_tree(part: Any) -> bool:
    """Return whether features or labels have several parts; a tuple of arrays is one array, of rows."""
    return isinstance(part, Mapping) or (
        isinstance(part, tuple) and any(isinstance(entry, Tensor | Mapping) for entry in part)
    )


def _tensors(pair: Pair, what: str) -> tuple[Tensor, Tensor]:
    try:
        given_x, given_y = pair
    except (TypeError, ValueError) as error:
        rule = f"must be a pair of arrays, features and labels ({error})"
        remedy = "give (x, y), a torch Dataset, a DataLoader, a HuggingFace dataset or a dict of columns"
        if what.startswith("client"):
            remedy = "give a list with each client's: [(x, y), …], Datasets, DataLoaders or dicts of columns"
        raise InputError([Fault(f"data ({what})", rule, type(pair).__name__, remedy)]) from error
    features, labels = as_tensor(given_x, what, "features"), as_tensor(given_y, what, "labels")
    if not features.ndim or not labels.ndim or len(features) != len(labels) or not len(features):
        rule = "must have as many labels as samples, and at least one"
        sizes = tuple(len(array) if array.ndim else 0 for array in (features, labels))
        raise InputError([Fault(f"data ({what})", rule, sizes, "check the arrays")])
    # Class labels of any integer type: torch's losses need int64.
    return features, labels if labels.is_floating_point() else labels.long()


def _labels(x: Tree, y: Tree) -> NDArray[Any]:
    """Return the labels that a partition may go by, (S,): NaN if there are no classes or numbers."""
    if y is x:
        named = y.get("labels", y.get("label")) if isinstance(y, dict) else None
        y = named if isinstance(named, Tensor) and named.ndim == 1 else None
    if not isinstance(y, Tensor):
        return np.full(size(x), np.nan)
    return np.asarray(y.reshape(len(y), -1)[:, 0])


def _column(name: str, given: Mapping[str, Any], found: Mapping[str, Any]) -> Any:
    """Return the values of a column: one that was passed, or one of the data."""
    for columns in (given, found):
        if name in columns:
            return columns[name]
    rule = "must name a column of the training data, or one given as columns={…}"
    remedy = nearest(name, [*given, *found]) if given or found else f"give columns={{{name!r}: […]}}"
    raise InputError([Fault(f"{partitions.FIELD}.column", rule, name, remedy)])
