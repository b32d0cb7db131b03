"""Where datasets lie on this machine: ready for a network, as files that are mapped into memory."""

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
    """A dataset that is here; `digests` are SHA-256 of its files."""

    dataset: Dataset
    folder: Path
    source: str
    fetched: str
    digests: Mapping[str, str]

    @property
    def content(self) -> str:
        """Names the whole content."""
        listed = json.dumps([self.digests[_file(name)] for name in ARRAYS])
        return hashlib.sha256(listed.encode()).hexdigest()

    @property
    def bytes(self) -> int:
        return sum((self.folder / name).stat().st_size for name in self.digests)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Mapped, so that a start reads nothing and processes share the memory.

        Private copies of pages that someone writes to: the files never change.
        """
        return {name: np.lib.format.open_memmap(self.folder / _file(name), mode="c") for name in ARRAYS}

    def faults(self) -> list[str]:
        """What is wrong with the files, by their checksums."""
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
    """$FLEXFL_DATA, or this person's cache."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else platformdirs.user_cache_path("flexfl", appauthor=False) / "data"


def find(dataset: Dataset) -> Stored | None:
    """The dataset if it is here and looks whole (by sizes; `faults` reads every byte)."""
    stored = _told(dataset)
    try:
        arrays = stored.arrays() if stored else {}
    except Exception:  # files that were cut or changed may raise almost anything
        return None
    kinds = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    return stored if kinds == {name: (dataset.shapes[name], _kind(name)) for name in ARRAYS} else None


def faults(dataset: Dataset) -> list[str] | None:
    """What is wrong with the dataset that is here, file by file; None if there is none."""
    folder = data_folder() / dataset.name
    if not folder.exists():
        return None
    stored = _told(dataset)
    if stored is None:
        return [f"{folder / _MANIFEST} cannot be read"]
    return stored.faults() or ([] if find(dataset) else [f"{folder} holds something else"])


def _told(dataset: Dataset) -> Stored | None:
    """What the manifest says."""
    folder = data_folder() / dataset.name
    try:
        told = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        stored = Stored(dataset, folder, str(told["source"]), str(told["fetched"]), dict(told["digests"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return stored if set(stored.digests) == {_file(name) for name in ARRAYS} else None


def place(dataset: Dataset, published: Mapping[str, NDArray[Any]], source: str) -> Stored:
    """Check what a source gave and put it into the store, whole or not at all."""
    check(dataset, published)
    base = data_folder()
    work = Path(tempfile.mkdtemp(prefix=_new(dataset), dir=base))
    try:
        digests = {}
        for name in ARRAYS:
            array = published[name]
            ready = dataset.images(array) if name.endswith("_x") else array
            with (work / _file(name)).open("wb") as file:
                np.save(file, ready.astype(_kind(name), copy=False), allow_pickle=False)
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
        if target.exists():  # a folder cannot be replaced by renaming unless it is empty
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
    """Whether the arrays are what the catalogue says, byte for byte."""
    for name in ARRAYS:
        array, shape = published[name], dataset.shapes[name]
        if array.dtype != np.uint8 or array.shape != shape:
            raise FlexFLError(f"{name} must be bytes of shape {shape}, got {array.dtype} of {array.shape}")
        digest = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        if digest != dataset.digests[name]:
            raise FlexFLError(f"{name} must have the SHA-256 {dataset.digests[name]}, got {digest}")


@contextmanager
def locked(dataset: Dataset) -> Iterator[None]:
    """One process at a time brings a dataset; others wait and then find it.

    Removes what a killed one has left behind, and puts back what it had moved away.
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
        raise FlexFLError(f"{reason}; name another folder in {FOLDER_VARIABLE}") from error


def downloads(dataset: Dataset) -> Path:
    """Where files come in; they stay until all is well, so that a cut download goes on."""
    return data_folder() / f".{dataset.name}-download"


def _new(dataset: Dataset) -> str:
    return f".{dataset.name}-new-"


def _old(dataset: Dataset) -> str:
    return f".{dataset.name}-old-"


def _kind(name: str) -> np.dtype[Any]:
    """What networks take: features and classes."""
    return np.dtype(np.float32 if name.endswith("_x") else np.int64)


def _file(name: str) -> str:
    return f"{name}.npy"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
