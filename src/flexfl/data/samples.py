"""Samples from what people have: torch datasets and loaders, HuggingFace datasets, columns of arrays.

All of them are read once, into memory, as trees of tensors (`flexfl.trees`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from flexfl.errors import Fault, InputError, in_words, nearest
from flexfl.trees import Tree, joined, leaves, mapped

log = logging.getLogger("flexfl")

_BLOCK = 1024
Columns = Mapping[str, Any]
"""By name, one value for each sample."""


def read(
    source: Any, what: str, *, features: str | Sequence[str] | None = None, label: str | None = None
) -> tuple[Tree, Tree, Columns]:
    """Return features, labels and all columns of a source; labels *are* the features if there are none.

    Args:
        source: as `Federated.split` takes it.
        what: which data they are, for messages.
        features: the column, or columns, that the model is called with; by default all but the label.
        label: the column that the loss compares outputs with.

    Raises:
        InputError: the source cannot be read, or its samples do not fit each other.
    """
    found = _collected(source, what)
    if isinstance(found, Mapping):
        return *_selected(found, what, features, label), found
    if features is not None or label is not None:
        remedy = "leave out features and label, or let each sample be a dict"
        raise _refuse(what, "must have columns to choose from", "samples without names", remedy)
    if not isinstance(found, tuple) or len(found) < 2:
        remedy = "give (x, y), (x1, x2, …, y), or a dict"
        raise _refuse(what, "must have samples with features and labels", _kind_of(found), remedy)
    *inputs, labels = (_tree(part, f"{what}, part {n} of a sample") for n, part in enumerate(found))
    x = inputs[0] if len(inputs) == 1 else tuple(inputs)
    _check_sizes((x, labels), what)
    return x, _labels(labels), {}


def _collected(source: Any, what: str) -> Any:
    """Return a source as columns, or as a tuple of the parts of its samples."""
    if isinstance(source, DataLoader):
        return _of_loader(source, what)
    if isinstance(source, IterableDataset) or not hasattr(source, "__len__"):
        kind, remedy = type(source).__name__, "take a list of samples: list(itertools.islice(it, 10_000))"
        raise _refuse(what, "must have a length, so that clients can hold parts of it", kind, remedy)
    if hasattr(source, "column_names") and hasattr(source, "with_format"):
        if isinstance(source, Mapping):  # a DatasetDict
            remedy = f"choose one, for example dataset[{next(iter(source), 'train')!r}]"
            raise _refuse(what, "must be one split of a dataset", list(source), remedy)
        return _HuggingFace(source, what)
    if isinstance(source, Mapping | tuple):
        return source
    if type(source) is TensorDataset:
        return source.tensors
    return _of_dataset(source, what)


def _of_loader(loader: DataLoader[Any], what: str) -> Any:
    """Return the samples of a loader's dataset; refuse what a loader does that a run would not do."""
    if isinstance(loader.dataset, IterableDataset):
        return _collected(loader.dataset, what)
    batches = loader.batch_sampler
    used: Any = loader.sampler if batches is None else batches
    if type(used) is BatchSampler:
        used = used.sampler
    random = type(used) is RandomSampler and not used.replacement and used._num_samples is None
    if not random and type(used) is not SequentialSampler:
        rule = "must draw plain minibatches: each client goes through its samples in random order"
        remedy = "give the dataset with the samples that you want, for example a torch.utils.data.Subset"
        raise _refuse(what, rule, type(used).__name__, remedy)
    if loader.batch_size is not None:
        log.warning(
            "data (%s): the loader's batch size, %d, is not used; set train={'batch_size': %d}",
            *(what, loader.batch_size, loader.batch_size),
        )
    collate = loader.collate_fn
    if collate is default_collate or batches is None:
        return _collected(loader.dataset, what)
    return _of_dataset(loader.dataset, what, collate)


def _of_dataset(dataset: Any, what: str, collate: Callable[[list[Any]], Any] | None = None) -> Any:
    """Return all samples of a map-style dataset, collated; an own collate gets them all at once."""
    length = len(dataset)
    if not length:
        raise _refuse(what, "must have at least one sample", 0, "check the dataset")

    def take(begin: int, end: int) -> Any:
        samples = [_sample(dataset, n, what) for n in range(begin, end)]
        try:
            return collate(samples) if collate else default_collate([_listed(s) for s in samples])
        except Exception as error:  # whatever an own collate may raise
            rule = f"must have samples of the same shape and type ({in_words(error)})"
            remedy = "pad or crop them, or give a DataLoader with a collate_fn that pads"
            raise _refuse(what, rule, f"samples {begin} to {end - 1}", remedy) from error

    if not _equal(take(0, 1), take(0, 1)):
        log.warning(
            "data (%s): the dataset gives another sample 0 each time; every sample is read once, "
            "and so a random augmentation is drawn once for the whole run",
            what,
        )
    if collate is not None:
        return _plain(take(0, length))
    blocks = [_plain(take(n, min(n + _BLOCK, length))) for n in range(0, length, _BLOCK)]
    try:
        return blocks[0] if len(blocks) == 1 else _joined(blocks)
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        rule = f"must have samples of the same shape and type ({in_words(error)})"
        raise _refuse(what, rule, "samples that differ", "pad or crop them") from error


def _sample(dataset: Any, place: int, what: str) -> Any:
    try:
        return dataset[place]
    except Exception as error:  # whatever a user's dataset may raise
        rule = f"must give its sample {place} ({in_words(error)})"
        raise _refuse(what, rule, type(dataset).__name__, "correct its __getitem__") from error


def _listed(sample: Any) -> Any:
    """Return a sample with lists of numbers as tensors: torch's collate would transpose them."""
    if isinstance(sample, Mapping):
        return {key: _listed(part) for key, part in sample.items()}
    if isinstance(sample, tuple):
        return tuple(_listed(part) for part in sample)
    return torch.as_tensor(sample) if isinstance(sample, list) else sample


def _plain(batch: Any) -> Any:
    """Return a batch as dicts and tuples, whatever collate has made of them; lists of text stay lists."""
    if isinstance(batch, Mapping):
        return {str(key): _plain(part) for key, part in batch.items()}
    if isinstance(batch, tuple) or (isinstance(batch, list) and not all(isinstance(p, str) for p in batch)):
        return tuple(_plain(part) for part in batch)
    return batch


def _joined(blocks: list[Any]) -> Any:
    """Return blocks one after the other; columns of text are lists."""
    first = blocks[0]
    if isinstance(first, dict):
        if any(block.keys() != first.keys() for block in blocks):
            raise KeyError("the keys differ")
        return {key: _joined([block[key] for block in blocks]) for key in first}
    if isinstance(first, tuple):
        return tuple(_joined(list(parts)) for parts in zip(*blocks, strict=True))
    return joined(blocks) if isinstance(first, Tensor) else list(chain.from_iterable(blocks))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, Tensor) and one.is_floating_point():
        return torch.equal(one.nan_to_num(), other.nan_to_num())
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


class _HuggingFace(Mapping[str, Any]):
    """The columns of a `datasets.Dataset`, each read when it is asked for."""

    def __init__(self, dataset: Any, what: str) -> None:
        self._dataset, self._what = dataset, what

    def __getitem__(self, name: str) -> Any:
        if name not in self._dataset.column_names:
            raise KeyError(name)
        values = self._dataset.with_format("torch", columns=[name])[:][name]
        if isinstance(values, list) and values and isinstance(values[0], Tensor):
            shape = tuple(values[0].shape)
            other = next((n for n, value in enumerate(values) if tuple(value.shape) != shape), None)
            rule = f"must have one shape in column {name!r}: sample 0 has {shape}"
            got = (
                "samples that differ" if other is None else f"{tuple(values[other].shape)} at sample {other}"
            )
            raise _refuse(self._what, rule, got, "pad or crop them, for example with dataset.map")
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._dataset.column_names)

    def __len__(self) -> int:
        return len(self._dataset.column_names)


def _selected(
    columns: Columns, what: str, features: str | Sequence[str] | None, label: str | None
) -> tuple[Tree, Tree]:
    """Return features and labels by the names of their columns."""
    wanted = [features] if isinstance(features, str) else list(features or (n for n in columns if n != label))
    faults = [
        Fault(f"data ({what})", f"must have the column {name!r}", list(columns), nearest(name, columns))
        for name in [*wanted, *([label] if label is not None else [])]
        if name not in columns
    ]
    if faults or not wanted:
        raise InputError(faults or [Fault(f"data ({what})", "must have columns", [], "check it")], "the data")
    found = {name: _tree(columns[name], f"{what}, column {name!r}") for name in wanted}
    x = found[features] if isinstance(features, str) else found
    y = x if label is None else _labels(_tree(columns[label], f"{what}, column {label!r}"))
    _check_sizes(found if y is x else (found, y), what)
    return x, y


def _tree(values: Any, what: str) -> Tree:
    """Return values as a tree of tensors."""
    if isinstance(values, Mapping):
        return {str(key): _tree(part, what) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_tree(part, what) for part in values)
    try:
        found = torch.as_tensor(np.asarray(values) if isinstance(values, list) else values)
        # Class labels and indices of any signed integer type: torch's losses need int64.
        return found.long() if found.dtype in (torch.int8, torch.int16, torch.int32) else found
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "convert it (tokenise text), or name the columns that the model takes: features=[…]"
        raise _refuse(what, f"must hold numbers of one shape ({error})", _kind_of(values), remedy) from error


def _labels(tree: Tree) -> Tree:
    """Return labels with classes of any integer type, and booleans, as int64."""
    return mapped(lambda tensor: tensor if tensor.is_floating_point() else tensor.long(), tree)


def _check_sizes(tree: Tree, what: str) -> None:
    sizes = mapped(lambda tensor: len(tensor) if tensor.ndim else 0, tree)
    found = {len(tensor) if tensor.ndim else 0 for _, tensor in leaves(tree)}
    if len(found) != 1 or 0 in found:
        rule = "must have one row for each sample in everything, and at least one sample"
        raise _refuse(what, rule, sizes, "check the arrays")


def _kind_of(found: Any) -> str:
    inner = f" of {type(found[0]).__name__}" if isinstance(found, list | tuple) and found else ""
    return type(found).__name__ + inner


def _refuse(what: str, rule: str, value: Any, remedy: str) -> InputError:
    return InputError([Fault(f"data ({what})", rule, value, remedy)], "the data")
