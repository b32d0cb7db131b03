"""Arrays that live in a file and come into memory page by page."""

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
    """Zeros in a file of `folder` that has no name: it goes when the array goes, also after a crash."""
    size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is told now, by an OSError
        else:
            file.truncate(size)
        pages = mmap.mmap(file.fileno(), 0)
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


def pages_of(array: NDArray[Any]) -> mmap.mmap | None:
    """The file behind an array, if there is one."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


def leave_memory(array: NDArray[Any]) -> None:
    """Let the pages of a mapped array go; what was written stays in the file. Others are left alone."""
    pages = pages_of(array)
    if pages is not None and hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_DONTNEED)
