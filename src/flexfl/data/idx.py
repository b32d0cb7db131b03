"""The IDX format of the MNIST family, plain or gzip."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flexfl.errors import FlexFLError

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes; refuses any other content."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise FlexFLError(f"{path} cannot be read ({error}); fetch the file anew") from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise FlexFLError(f"{path} is not an IDX file of unsigned bytes; fetch the file anew")
    axes = raw[3]
    start = 4 + 4 * axes
    if len(raw) < start:
        raise FlexFLError(f"{path} ends within its header; fetch the file anew")
    shape = np.frombuffer(raw[4:start], dtype=">u4").astype(int).tolist()
    if math.prod(shape) != len(raw) - start:
        raise FlexFLError(
            f"{path} announces shape {shape} but holds {len(raw) - start} bytes; fetch the file anew"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
