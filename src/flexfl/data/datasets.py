"""Datasets by name, as tensors ready for a network."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flexfl.data.catalogue import ARRAYS, CATALOGUE, DATASETS, Dataset
from flexfl.data.federated import Federated, Pair
from flexfl.data.fetch import NoSourceError, fetch, published
from flexfl.data.images import FASHION, Images
from flexfl.errors import Fault, FlexFLError, InputError, nearest
from flexfl.registry import is_given, must_be_given_again

# What NumPy raises for files that are not, or not quite, an archive of plain arrays.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    NotImplementedError,  # a way of packing that zipfile does not know
    zlib.error,
    zipfile.BadZipFile,
)


def load_federated(
    name: str,
    path: str | Path | None = None,
    *,
    clients: int,
    partition: str | Mapping[str, Any] = "iid",
    seed: int = 1,
) -> Federated:
    """Return a dataset, spread over clients.

    Args:
        name: one that ships or is installed, or "file".
        path: the .npz file, or the published files of the named dataset.
        clients: N.
        partition: a name, or a table with a kind and its options.
        seed: of the run.

    Raises:
        InputError: what was given does not fit.
        FlexFLError: the dataset is not on this machine.
    """
    train, test, content = _load(name, path)
    return Federated.split(train, test, clients=clients, partition=partition, seed=seed, content=content)


def load_own(name: str, path: Path) -> Federated:
    """Return one client's own samples, from an .npz file with train_x and train_y, scaled like `name`."""
    entry = CATALOGUE.get(name)
    images = FASHION if name == "fashion-mini" else entry.images if entry else None
    return Federated.of_clients([_pair(_read_npz(path, ("train_x", "train_y")), "train", images)])


def load_pairs(name: str, path: str | Path | None = None) -> tuple[Pair, Pair]:
    """Return training and test set."""
    return _load(name, path)[:2]


def _load(name: str, given_path: str | Path | None) -> tuple[Pair, Pair, str | None]:
    """Return training and test set, and the name of their content if the store knows it."""
    if is_given(name):
        raise must_be_given_again("data.name", name)
    if name not in DATASETS:
        rule = f"must be one of {', '.join(DATASETS)}"
        raise InputError([Fault("data.name", rule, name, nearest(name, DATASETS))])
    if name == "fashion-mini":
        with resources.as_file(resources.files("flexfl.data") / "fashion_mini/fashion_mini.npz") as path:
            return *_pairs(_read_npz(path), FASHION), None
    entry = CATALOGUE.get(name)
    if given_path is not None:
        path = Path(given_path)
        if entry is not None and path.suffix != ".npz":
            return *_pairs(_read_published(entry, path), entry.images), None
        return *_pairs(_read_npz(path), entry.images if entry else None), None
    if entry is None:
        remedy = f"give an .npz file with the arrays {', '.join(ARRAYS)}"
        raise InputError([Fault("data.path", f"is needed for the dataset {name}", None, remedy)])
    try:
        stored = fetch(entry, local_only=True)
    except NoSourceError as error:
        remedy = f"fetch it with: flexfl data fetch {entry.name} (or name your own files in data.path)"
        raise FlexFLError(f"{entry.name} is not on this machine yet; {remedy}") from error
    return *_pairs(stored.arrays(), None), stored.content


def _pairs(arrays: Mapping[str, NDArray[Any]], images: Images | None) -> tuple[Pair, Pair]:
    return _pair(arrays, "train", images), _pair(arrays, "test", images)


def _pair(arrays: Mapping[str, NDArray[Any]], split: str, images: Images | None) -> Pair:
    """Tensors; without `images` the features are taken as they are, as float32."""
    features, labels = arrays[f"{split}_x"], arrays[f"{split}_y"]
    for name, array in ((f"{split}_x", features), (f"{split}_y", labels)):
        if array.dtype.kind not in "uifb":
            rule = f"must hold numbers in {name}"
            raise InputError([Fault("data.path", rule, str(array.dtype), "save it as numbers")])
    if labels.dtype.kind != "f":
        labels = labels.astype(np.int64, copy=False)
    scaled = images(features) if images else features.astype(np.float32, copy=False)
    return torch.as_tensor(scaled), torch.as_tensor(labels)


def _read_published(entry: Dataset, path: Path) -> dict[str, NDArray[Any]]:
    try:
        return published(entry, path)
    except FlexFLError as error:
        fault = Fault("data.path", f"must hold {entry.name} ({error})", str(path), f"give {entry.by_hand}")
        raise InputError([fault]) from error


def _read_npz(path: Path, wanted: Sequence[str] = ARRAYS) -> dict[str, NDArray[Any]]:
    """The wanted arrays of an .npz file; nothing in it is ever executed."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in wanted if name not in archive]
            if not missing:
                return {name: archive[name] for name in wanted}
    except _UNREADABLE as error:
        remedy = "save it with numpy.savez"
        fault = Fault("data.path", f"must be an .npz file of plain arrays ({error})", str(path), remedy)
        raise InputError([fault]) from error
    rule = f"must hold the arrays {', '.join(wanted)}"
    raise InputError([Fault("data.path", rule, f"{path} without {', '.join(missing)}", "add them")])
