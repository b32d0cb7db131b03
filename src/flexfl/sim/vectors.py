"""What the engine asks of vectors, whichever kernels keep them: NumPy's or torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def on_host(values: Any) -> NDArray[Any]:
    """Return an array of NumPy or torch as NumPy's."""
    return values if isinstance(values, np.ndarray) else np.asarray(values.cpu().numpy())


def numpy_dtype(values: Any) -> np.dtype[Any]:
    """Return the type of the numbers in an array of NumPy or torch."""
    return np.dtype(str(values.dtype).removeprefix("torch."))


def some_rows(matrix: Any, most_bytes: int) -> Iterator[slice]:
    """Yield the rows of a matrix, as many at a time as take so many bytes; at least one."""
    rows, columns = matrix.shape
    at_once = max(1, most_bytes // max(1, columns * numpy_dtype(matrix).itemsize))
    for begin in range(0, rows, at_once):
        yield slice(begin, begin + at_once)
