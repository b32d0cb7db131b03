"""Checkpoints: arrays in a safetensors file, atomic, with a digest; never pickle."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from flexfl.errors import RunDirectoryError

Arrays = Mapping[str, NDArray[np.generic]]


def write_checkpoint(path: Path, arrays: Arrays) -> str:
    """Write and sync `path` whole or not at all; returns the digest of the file."""
    partial = path.with_name(path.name + ".partial")
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, partial)
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "blake2b").hexdigest()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest


def read_checkpoint(path: Path, digest: str) -> dict[str, NDArray[np.generic]]:
    """The arrays in `path`, if its content is what was written."""
    remedy = "restore the file from a copy, or start anew in another --out"
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "blake2b").hexdigest()
        if found != digest:
            raise RunDirectoryError(
                f"checkpoint {path.name} is corrupt or foreign: its digest must be {digest[:12]}…, "
                f"got {found[:12]}…; {remedy}"
            )
        loaded: dict[str, NDArray[np.generic]] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunDirectoryError(f"checkpoint {path.name} cannot be read ({error}); {remedy}") from error
    return loaded
