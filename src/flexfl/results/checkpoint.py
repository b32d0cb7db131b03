"""Checkpoints: arrays in one safetensors file, written atomically, with a digest; never pickle.

Files are written and read in chunks, so residuals larger than memory can be saved, too.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from flexfl.errors import RunDirectoryError
from flexfl.mapped import leave_memory

Arrays = Mapping[str, NDArray[np.generic]]

_CODES = {
    **{"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1"},
    **{"I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"},
    **{"U8": "|u1", "U16": "<u2", "U32": "<u4", "U64": "<u8"},
}
_NAMES = {np.dtype(code): name for name, code in _CODES.items()}
_CHUNK_BYTES = 32 * 2**20


def write_checkpoint(path: Path, arrays: Arrays) -> str:
    """Write a checkpoint atomically, sync it to disk, and return the digest of the file."""
    partial = path.with_name(path.name + ".partial")
    digest = hashlib.blake2b()
    with partial.open("wb") as file:
        for chunk in _chunks(arrays):
            file.write(chunk)
            digest.update(chunk)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest.hexdigest()


def _chunks(arrays: Arrays) -> Iterator[memoryview | bytes]:
    """Yield the content of the file in order: length of the header, header, arrays."""
    # Largest item size first, so that every array starts at a multiple of its item size.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header, end = {}, 0
    for name in names:
        array, begin = arrays[name], end
        end += array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in names:
        array = np.atleast_1d(arrays[name])
        rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
        for begin in range(0, len(array), rows):
            yield np.ascontiguousarray(array[begin : begin + rows]).reshape(-1).view(np.uint8).data
            leave_memory(array)


def read_checkpoint(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in `path` after checking its digest; they are memory-mapped, thus read on access.

    Raises:
        RunDirectoryError: The file cannot be read, or its content is not what was written.
    """
    remedy = "restore the file from a backup, or start a new run in another out=…"
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "blake2b").hexdigest()
            if found != digest:
                raise RunDirectoryError(
                    f"checkpoint {path.name} is corrupt or from another run: its digest must be "
                    f"{digest[:12]}…, got {found[:12]}…; {remedy}"
                )
            with safe_open(path, framework="numpy"):
                pass  # validates the header: offsets lie within the file and match the shapes
            file.seek(0)
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return {name: _array(pages, 8 + length, entry) for name, entry in header.items()}
    except (OSError, SafetensorError, KeyError) as error:
        raise RunDirectoryError(f"checkpoint {path.name} cannot be read ({error}); {remedy}") from error


def _array(pages: mmap.mmap, start: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    begin, end = entry["data_offsets"]
    dtype = np.dtype(_CODES[entry["dtype"]])
    count = (end - begin) // dtype.itemsize
    return np.frombuffer(pages, dtype, count, start + begin).reshape(entry["shape"])
