"""What Hypothesis draws from, shared by the property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# Few distinct magnitudes make ties common; zeros are common in residuals.
components = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.5, 2.0]),
    st.floats(-10, 10, allow_nan=False, width=32),
)


def vectors(max_dim: int = 30) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, st.integers(1, max_dim), elements=components)


def rows(max_rows: int = 5, max_dim: int = 20, dtype: type = np.float64) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(
        dtype, st.tuples(st.integers(1, max_rows), st.integers(1, max_dim)), elements=components
    )


def positive(low: float = 1e-4, high: float = 100.0) -> st.SearchStrategy[float]:
    return st.floats(low, high)
