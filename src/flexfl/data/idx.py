"""The IDX format of the MNIST family, plain or gzip."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.data.archives import Members
from flexfl.errors import FlexFLError

_UNSIGNED_BYTE = 0x08
_GZIP_START, _GZIP = b"\x1f\x8b", 31
_MOST_AXES = 4
_MOST_BYTES = 2**30
"""The largest file of the family has 47 MB; a larger one may be an attempt to exhaust memory."""

FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
IDX_GZ = tuple(f"{name}.gz" for name in FILES.values())
IDX = tuple(FILES.values())


def read_idx_files(files: Members) -> dict[str, NDArray[Any]]:
    """Read the four arrays of a dataset from files with or without `.gz`."""
    given = {array: name if name in files else f"{name}.gz" for array, name in FILES.items()}
    return {array: read_idx(name, files[name]) for array, name in given.items()}


def read_idx(name: str, raw: bytes) -> NDArray[np.uint8]:
    """Read the array in an IDX file of unsigned bytes.

    Args:
        name: The file's name, for error messages.
        raw: The file's content, plain or gzip.

    Raises:
        FlexFLError: The content is not such a file.
    """
    if raw.startswith(_GZIP_START):
        raw = _decompress(name, raw)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise FlexFLError(f"{name} is not an IDX file of unsigned bytes; fetch the file again")
    axes = raw[3]
    start = 4 + 4 * axes
    if not 1 <= axes <= _MOST_AXES:
        raise FlexFLError(f"{name} must have 1 to {_MOST_AXES} axes, got {axes}; fetch the file again")
    if len(raw) < start:
        raise FlexFLError(f"{name} ends within its header; fetch the file again")
    shape = np.frombuffer(raw[4:start], dtype=">u4").astype(int).tolist()
    if math.prod(shape) != len(raw) - start or not all(shape):
        raise FlexFLError(
            f"{name} announces shape {shape} but holds {len(raw) - start} bytes; fetch the file again"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _decompress(name: str, compressed: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        raw = stream.decompress(compressed, _MOST_BYTES)
    except zlib.error as error:
        raise FlexFLError(f"{name} cannot be read ({error}); fetch the file again") from error
    if not stream.eof:
        reason = "it ends too early" if not stream.unconsumed_tail else "it is larger than any such file"
        raise FlexFLError(f"{name} cannot be read ({reason}); fetch the file again")
    return raw
