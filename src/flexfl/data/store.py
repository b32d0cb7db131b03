"""The store of datasets on this machine: scaled arrays in files that are memory-mapped."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from flexfl.data.catalogue import ARRAYS, Dataset
from flexfl.errors import FlexFLError

FOLDER_VARIABLE = "FLEXFL_DATA"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Stored:
    """A stored dataset; `digests` are SHA-256 of its files."""

    dataset: Dataset
    folder: Path
    source: str
    fetched: str
    digests: Mapping[str, str]

    @property
    def content(self) -> str:
        """A digest of the whole content."""
        listed = json.dumps([self.digests[_file(name)] for name in ARRAYS])
        return hashlib.sha256(listed.encode()).hexdigest()

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum((self.folder / name).stat().st_size for name in self.digests)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the memory-mapped arrays, which are read on access and shared between processes.

        They are copy-on-write: the files never change.
        """
        return {name: np.lib.format.open_memmap(self.folder / _file(name), mode="c") for name in ARRAYS}

    def faults(self) -> list[str]:
        """List files that are missing or fail their checksum."""
        found = []
        for name, digest in self.digests.items():
            path = self.folder / name
            try:
                if _digest(path) != digest:
                    found.append(f"{path} has changed since it was fetched")
            except OSError as error:
                found.append(f"{path} cannot be read ({error.strerror})")
        return found


def data_folder() -> Path:
    """Return the folder of the store: $FLEXFL_DATA, or the user's cache."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else platformdirs.user_cache_path("flexfl", appauthor=False) / "data"


def find(dataset: Dataset) -> Stored | None:
    """Return a stored dataset, or None; checks sizes only (`faults` verifies checksums)."""
    stored = _read_manifest(dataset)
    try:
        arrays = stored.arrays() if stored else {}
    except Exception:  # truncated or changed files may raise almost anything
        return None
    found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    return stored if found == {name: (dataset.shapes[name], _dtype(name)) for name in ARRAYS} else None


def faults(dataset: Dataset) -> list[str] | None:
    """List the faults of a stored dataset, file by file; None if it is not stored."""
    folder = data_folder() / dataset.name
    if not folder.exists():
        return None
    stored = _read_manifest(dataset)
    if stored is None:
        return [f"{folder / _MANIFEST} cannot be read"]
    return stored.faults() or ([] if find(dataset) else [f"{folder} holds something else"])


def _read_manifest(dataset: Dataset) -> Stored | None:
    """Return the stored dataset that the manifest describes; None if it cannot be read."""
    folder = data_folder() / dataset.name
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        source, fetched = str(manifest["source"]), str(manifest["fetched"])
        stored = Stored(dataset, folder, source, fetched, dict(manifest["digests"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return stored if set(stored.digests) == {_file(name) for name in ARRAYS} else None


def save(dataset: Dataset, published: Mapping[str, NDArray[Any]], source: str) -> Stored:
    """Check a dataset and save it atomically in the store.

    Args:
        dataset: The dataset.
        published: Its arrays as published.
        source: Where they come from.

    Raises:
        FlexFLError: The arrays are not those of the catalogue.
    """
    check(dataset, published)
    base = data_folder()
    work = Path(tempfile.mkdtemp(prefix=_new(dataset), dir=base))
    try:
        digests = {}
        for name in ARRAYS:
            array = published[name]
            scaled = dataset.scaling(array) if name.endswith("_x") else array
            with (work / _file(name)).open("wb") as file:
                np.save(file, scaled.astype(_dtype(name), copy=False), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            digests[_file(name)] = _digest(work / _file(name))
        manifest = {
            "source": source,
            "fetched": time.strftime("%Y-%m-%d"),
            "digests": digests,
        }
        (work / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        work.chmod(0o755)
        target = base / dataset.name
        if target.exists():  # renaming cannot replace a folder that is not empty
            old = Path(tempfile.mkdtemp(prefix=_old(dataset), dir=base))
            target.rename(old / dataset.name)
            work.rename(target)
            shutil.rmtree(old)
        else:
            work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    stored = find(dataset)
    assert stored is not None
    return stored


def check(dataset: Dataset, published: Mapping[str, NDArray[Any]]) -> None:
    """Raise FlexFLError if the arrays are not those of the catalogue, byte for byte."""
    for name in ARRAYS:
        array, shape = published[name], dataset.shapes[name]
        if array.dtype != np.uint8 or array.shape != shape:
            raise FlexFLError(f"{name} must be bytes of shape {shape}, got {array.dtype} of {array.shape}")
        digest = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        if digest != dataset.digests[name]:
            raise FlexFLError(f"{name} must have the SHA-256 {dataset.digests[name]}, got {digest}")


@contextmanager
def locked(dataset: Dataset) -> Iterator[None]:
    """Lock a dataset for fetching; other processes wait and then find it stored.

    Also cleans up after a killed process: deletes its temporary files, and restores the dataset it
    was replacing.
    """
    base = data_folder()
    try:
        base.mkdir(parents=True, exist_ok=True)
        handle = os.open(base / f".{dataset.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for old in base.glob(f"{_old(dataset)}*"):
                if (old / dataset.name).exists() and not (base / dataset.name).exists():
                    (old / dataset.name).rename(base / dataset.name)
            for left in (*base.glob(f"{_new(dataset)}*"), *base.glob(f"{_old(dataset)}*")):
                shutil.rmtree(left)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        reason = f"{base} cannot be written ({error.strerror or error})"
        raise FlexFLError(f"{reason}; set {FOLDER_VARIABLE} to another folder") from error


def downloads(dataset: Dataset) -> Path:
    """Return the folder of downloads, which are kept until the dataset is stored, to be resumable."""
    return data_folder() / f".{dataset.name}-download"


def _new(dataset: Dataset) -> str:
    return f".{dataset.name}-new-"


def _old(dataset: Dataset) -> str:
    return f".{dataset.name}-old-"


def _dtype(name: str) -> np.dtype[Any]:
    """Return the type of a stored array: float32 features, int64 classes."""
    return np.dtype(np.float32 if name.endswith("_x") else np.int64)


def _file(name: str) -> str:
    return f"{name}.npy"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
