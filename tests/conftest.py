"""Settings for all tests."""

from __future__ import annotations

import os
import shutil
import tempfile

from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Tests neither see nor change the datasets of the person who runs them.
os.environ["FLEXFL_DATA"] = tempfile.mkdtemp(prefix="flexfl-tests-")


def pytest_sessionstart() -> None:
    """One thread: the tests' arrays are small, and several test processes share the cores."""
    import numba
    import torch

    torch.set_num_threads(1)
    numba.set_num_threads(1)


def pytest_sessionfinish() -> None:
    shutil.rmtree(os.environ["FLEXFL_DATA"], ignore_errors=True)
