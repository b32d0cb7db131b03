"""Loading datasets as tensors, scaled for a network."""

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
from flexfl.data.fetch import NoSourceError, fetch, read_published
from flexfl.data.images import FASHION, PixelScaling
from flexfl.data.partition import FIELD, column_of
from flexfl.errors import Fault, FlexFLError, InputError, nearest
from flexfl.registry import is_given, must_be_given_again

# The exceptions that NumPy raises for files that are not a valid archive of plain arrays.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not support
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
        partition: a name, or a table with a kind and its options; a column is an array of the .npz file,
            with one value for each training sample.
        seed: of the run.

    Raises:
        InputError: what was given does not fit.
        FlexFLError: the dataset is not on this machine.
    """
    column = column_of(partition)
    columns = None if column is None else {column: _read_column(name, path, column)}
    train, test, content = _load(name, path)
    return Federated.split(
        train, test, clients=clients, partition=partition, seed=seed, columns=columns, content=content
    )


def load_own(name: str, path: Path) -> Federated:
    """Return one client's own samples, from an .npz file with train_x and train_y, scaled like `name`."""
    entry = CATALOGUE.get(name)
    scaling = FASHION if name == "fashion-mini" else entry.scaling if entry else None
    return Federated.of_clients([_pair(_read_npz(path, ("train_x", "train_y")), "train", scaling)])


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
            return *_pairs(_read_files(entry, path), entry.scaling), None
        return *_pairs(_read_npz(path), entry.scaling if entry else None), None
    if entry is None:
        remedy = f"give an .npz file with the arrays {', '.join(ARRAYS)}"
        raise InputError([Fault("data.path", f"is needed for the dataset {name}", None, remedy)])
    try:
        stored = fetch(entry, local_only=True)
    except NoSourceError as error:
        remedy = f"fetch it with: flexfl data fetch {entry.name} (or set data.path to your own files)"
        raise FlexFLError(f"{entry.name} is not on this machine yet; {remedy}") from error
    return *_pairs(stored.arrays(), None), stored.content


def _pairs(arrays: Mapping[str, NDArray[Any]], scaling: PixelScaling | None) -> tuple[Pair, Pair]:
    return _pair(arrays, "train", scaling), _pair(arrays, "test", scaling)


def _pair(arrays: Mapping[str, NDArray[Any]], split: str, scaling: PixelScaling | None) -> Pair:
    """Return features and labels as tensors; without `scaling` features are converted to float32."""
    features, labels = arrays[f"{split}_x"], arrays[f"{split}_y"]
    for name, array in ((f"{split}_x", features), (f"{split}_y", labels)):
        if array.dtype.kind not in "uifb":
            rule = f"must hold numbers in {name}"
            raise InputError([Fault("data.path", rule, str(array.dtype), "save it as numbers")])
    if labels.dtype.kind != "f":
        labels = labels.astype(np.int64, copy=False)
    scaled = scaling(features) if scaling else features.astype(np.float32, copy=False)
    return torch.as_tensor(scaled), torch.as_tensor(labels)


def _read_column(name: str, path: str | Path | None, column: str) -> NDArray[Any]:
    """Return the array of that name in an .npz file."""
    if path is None or Path(path).suffix != ".npz":
        rule = "must be an array of an .npz file"
        remedy = f'set data.name = "file" and data.path to one with {column} beside {", ".join(ARRAYS)}'
        raise InputError([Fault(f"{FIELD}.column", rule, f"{column} of {name}", remedy)])
    return _read_npz(Path(path), (column,))[column]


def _read_files(entry: Dataset, path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_published(entry, path)
    except FlexFLError as error:
        rule = f"must hold {entry.name} ({error})"
        raise InputError([Fault("data.path", rule, str(path), f"give {entry.manual_files}")]) from error


def _read_npz(path: Path, wanted: Sequence[str] = ARRAYS) -> dict[str, NDArray[Any]]:
    """Return the wanted arrays of an .npz file, without executing anything in it."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in wanted if name not in archive]
            if not missing:
                return {name: archive[name] for name in wanted}
    except FileNotFoundError as error:
        remedy = "check the path; in a TOML file it is relative to that file"
        raise InputError([Fault("data.path", "must name a file that exists", str(path), remedy)]) from error
    except _UNREADABLE as error:
        reason = "it is another kind of file, or holds Python objects" if "pickle" in str(error) else error
        remedy = f"save it with numpy.savez(path, {', '.join(f'{name}=…' for name in wanted)})"
        fault = Fault("data.path", f"must be an .npz file of plain arrays ({reason})", str(path), remedy)
        raise InputError([fault]) from error
    rule = f"must hold the arrays {', '.join(wanted)}"
    raise InputError([Fault("data.path", rule, f"{path} without {', '.join(missing)}", "add them")])
