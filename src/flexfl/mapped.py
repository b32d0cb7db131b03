"""Arrays in memory-mapped files."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mapped_zeros(shape: tuple[int, ...], dtype: Any, folder: Path) -> NDArray[Any]:
    """Return a memory-mapped array of zeros, in an unnamed temporary file that is freed with the array.

    Args:
        shape: Shape of the array.
        dtype: Its type.
        folder: Where to create the file.

    Raises:
        OSError: The disk is full.
    """
    size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # raises OSError now if the disk is full
        else:
            file.truncate(size)
        pages = mmap.mmap(file.fileno(), 0)
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


def pages_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the memory map behind an array; None if there is none."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


def leave_memory(array: NDArray[Any]) -> None:
    """Release the memory of a mapped array, whose content stays in the file; other arrays are unchanged."""
    pages = pages_of(array)
    if pages is not None and hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_DONTNEED)
