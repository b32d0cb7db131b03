"""Federated data: samples, labels, and which of them each client holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flexfl.arrays import FloatArray, IntArray
from flexfl.data import partition as partitions
from flexfl.errors import Fault, InputError
from flexfl.parameters import as_number
from flexfl.streams import Streams

Pair = tuple[Any, Any]
"""Features and labels, as tensors or arrays with one row per sample."""


@dataclass(frozen=True)
class Federated:
    """A dataset in memory and its partition; create it with `split` or `of_clients`."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor | None
    test_y: Tensor | None
    parts: tuple[IntArray, ...]
    content: str | None = None
    """A digest of the tensors if it is known; else `fingerprint` reads them."""
    recipe: Mapping[str, Any] | None = None
    """How `split` has partitioned them; None for parts that were given."""

    @classmethod
    def split(
        cls,
        train: Pair,
        test: Pair | None = None,
        *,
        clients: int,
        partition: str | Mapping[str, Any] = "iid",
        seed: int = 1,
        content: str | None = None,
    ) -> Federated:
        """Partition training data over clients; the test data are not partitioned.

        Args:
            train: Features and labels for training.
            test: Features and labels for testing.
            clients: Number of clients.
            partition: As in a spec: a name, or {"kind": "dirichlet", "alpha": 0.3}.
            seed: The seed of the partition.
            content: A digest of the data if it is known.

        Raises:
            InputError: The data or the number of clients are not valid.
        """
        recipe = partitions.PARTITIONS.resolve(partition, partitions.FIELD)  # its faults before the data's
        train_x, train_y = _tensors(train, "train")
        if not isinstance(clients, int | np.integer) or isinstance(clients, bool) or clients < 1:
            remedy = as_number(clients) or "give the number N"
            raise InputError([Fault("data.clients", "must be a whole number ≥ 1", clients, remedy)])
        if clients > len(train_x):
            rule = f"must be at most the number of training samples, {len(train_x)}"
            raise InputError([Fault("data.clients", rule, clients, "use fewer clients or more data")])
        if faults := _label_faults(train_y, "labels"):  # else a partition by label would stumble over them
            raise InputError(faults, "the data")
        generator = Streams(seed).generator("partition")
        labels = np.asarray(train_y.reshape(len(train_y), -1)[:, 0])
        parts = partitions.split(partition, labels, clients, generator)
        return replace(cls._checked(train_x, train_y, test, parts, content), recipe=recipe)

    @classmethod
    def of_clients(cls, clients: Sequence[Pair], test: Pair | None = None) -> Federated:
        """Combine the features and labels of each client, given in the order of the clients.

        Raises:
            InputError: The data are not valid, or their shapes differ between clients.
        """
        if isinstance(clients, Mapping):
            rule = "must be a list with a pair for each client"
            remedy = "give list(clients.values()); the order numbers the clients"
            raise InputError([Fault("data.clients", rule, type(clients).__name__, remedy)])
        if not len(clients):
            raise InputError([Fault("data.clients", "must be at least one", 0, "give each client's data")])
        pairs = [_tensors(pair, f"client {n}") for n, pair in enumerate(clients)]
        faults = []
        for n, (_, labels) in enumerate(pairs):
            if labels.is_floating_point() != pairs[0][1].is_floating_point():
                rule = f"must have labels of {pairs[0][1].dtype} like client 0"
                faults.append(Fault(f"data of client {n}", rule, str(labels.dtype), "convert them"))
            faults += _label_faults(labels, f"labels of client {n}")
        for what, like in (("features", pairs[0][0]), ("labels", pairs[0][1])):
            rule = f"must have {what} of shape {tuple(like.shape[1:])} like client 0"
            arrays = [pair[0] if what == "features" else pair[1] for pair in pairs]
            faults += [
                Fault(f"data of client {n}", rule, tuple(array.shape[1:]), "reshape them")
                for n, array in enumerate(arrays)
                if array.shape[1:] != like.shape[1:]
            ]
        if faults:
            raise InputError(faults, "the data")
        ends = np.cumsum([len(x) for x, _ in pairs])
        parts = tuple(np.arange(end - len(x), end) for (x, _), end in zip(pairs, ends, strict=True))
        return cls._checked(torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), test, parts)

    @classmethod
    def _checked(
        cls, x: Tensor, y: Tensor, test: Pair | None, parts: tuple[IntArray, ...], content: str | None = None
    ) -> Federated:
        faults = [
            Fault(f"data of client {n}", "must have at least one sample", 0, "remove that client")
            for n, part in enumerate(parts)
            if not len(part)
        ]
        if x.is_floating_point() and content is None:
            finite = torch.isfinite(x.reshape(len(x), -1)).all(dim=1).numpy()
            faults += [
                Fault(f"data of client {n}", "must be finite", f"sample {part[~finite[part]][0]}", "clean it")
                for n, part in enumerate(parts)
                if not finite[part].all()
            ]
        test_x, test_y = (None, None) if test is None else _tensors(test, "test")
        if test_x is not None and test_x.shape[1:] != x.shape[1:]:
            rule = f"must have features of shape {tuple(x.shape[1:])}, as in training"
            faults.append(Fault("data (test)", rule, tuple(test_x.shape[1:]), "reshape them"))
        if content is None and test_x is not None and not torch.isfinite(test_x).all():
            faults.append(Fault("data (test)", "must be finite", "NaN or infinity", "clean it"))
        if test_y is not None:
            faults += _label_faults(test_y, "test labels") + _other_labels(test_y, y)
        if faults:
            raise InputError(faults, "the data")
        return cls(x, y, test_x, test_y, parts, content)

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
        if self.train_y.ndim != 1 or self.train_y.is_floating_point():
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

        Parts that were not made by `split` count as they are.
        """
        found = {"data.samples": self._samples_digest[:12]}
        if self.recipe is None:
            return found | {"data.parts": self.fingerprint()[:12]}
        return found | {f"data.split.{name}": str(value) for name, value in self.recipe.items()}

    @cached_property
    def _samples_digest(self) -> str:
        if self.content is not None:
            return self.content
        digest = hashlib.blake2b(digest_size=16)
        for tensor in (self.train_x, self.train_y, self.test_x, self.test_y):
            if tensor is not None:
                digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()


def _label_faults(labels: Tensor, what: str) -> list[Fault]:
    """Return the fault of labels that are neither classes from 0 on nor finite numbers."""
    field = f"data ({what})"
    if labels.is_floating_point():
        finite = torch.isfinite(labels.reshape(len(labels), -1)).all(dim=1)
        if not finite.all():
            place = int((~finite).nonzero()[0])
            found = f"{labels[place].tolist()} in sample {place}"
            return [Fault(field, "must be finite", found, "leave such samples out")]
    elif labels.ndim == 1 and (least := int(labels.min())) < 0:
        remedy = "renumber the classes from 0, or leave samples without a label out"
        return [Fault(field, "must be classes from 0 on", least, remedy)]
    return []


def _other_labels(test: Tensor, train: Tensor) -> list[Fault]:
    """Return the fault of test labels that are of another kind than those for training."""
    if test.is_floating_point() != train.is_floating_point():
        kind = "numbers" if train.is_floating_point() else "whole numbers (classes)"
        remedy = "convert them: y.float()" if train.is_floating_point() else "convert them: y.long()"
        rule = f"must be {kind}, as in training ({train.dtype})"
        return [Fault("data (test labels)", rule, str(test.dtype), remedy)]
    if test.shape[1:] != train.shape[1:]:
        rule = f"must have the shape {tuple(train.shape[1:])} for each sample, as in training"
        return [Fault("data (test labels)", rule, tuple(test.shape[1:]), "reshape them")]
    return []


def _tensor(given: Any, what: str, part: str) -> Tensor:
    try:
        return torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition(". ")[0]
        remedy = "convert them to an array of numbers, one row for each sample"
        if part == "labels":
            remedy = "number the classes: numpy.unique(y, return_inverse=True)[1]"
        rule = f"must have {part} that are numbers ({reason})"
        raise InputError([Fault(f"data ({what})", rule, type(given).__name__, remedy)]) from error


def _tensors(pair: Pair, what: str) -> tuple[Tensor, Tensor]:
    try:
        given_x, given_y = pair
    except (TypeError, ValueError) as error:
        rule = f"must be a pair of arrays, features and labels ({error})"
        remedy = "give a list of pairs, [(x, y), …]" if what.startswith("client") else "give (x, y)"
        raise InputError([Fault(f"data ({what})", rule, type(pair).__name__, remedy)]) from error
    features, labels = _tensor(given_x, what, "features"), _tensor(given_y, what, "labels")
    if not features.ndim or not labels.ndim or len(features) != len(labels) or not len(features):
        rule = "must have as many labels as samples, and at least one"
        sizes = tuple(len(array) if array.ndim else 0 for array in (features, labels))
        raise InputError([Fault(f"data ({what})", rule, sizes, "check the arrays")])
    # Class labels of any integer type: torch's losses need int64.
    return features, labels if labels.is_floating_point() else labels.long()
