"""What is compiled with numba has a plain path for installs without it: the same bits."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flexfl.compress.message import order_bytes, subset_bytes
from flexfl.models import plain_pooling, pooling_kernels
from flexfl.wire import coder, plain_coder


@st.composite
def subsets(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Some, none or all of up to 400 places."""
    dim = draw(st.integers(1, 400))
    chosen = draw(st.sets(st.integers(0, dim - 1), max_size=dim))
    return np.array(sorted(chosen), dtype=np.int64), dim


def codes(indices: np.ndarray, dim: int) -> list[tuple[int, bytes]]:
    """The code by both coders: its length, and all that is written."""
    written = []
    for one in (coder, plain_coder):
        out = np.zeros(int(subset_bytes(len(indices), dim)) + 16, dtype=np.uint8)
        written.append((one.encode_subset(indices, dim, out), out.tobytes()))
    return written


@given(subsets())
@settings(max_examples=300, deadline=None)
def test_the_coders_write_the_same(given: tuple[np.ndarray, int]) -> None:
    compiled, plain = codes(*given)
    assert compiled == plain


@pytest.mark.parametrize("places", ["first", "last", "both ends", "every other"])
@pytest.mark.parametrize("dim", [10_000, 39_760])
def test_the_coders_write_the_same_for_long_vectors(places: str, dim: int) -> None:
    """The last ones make the longest carries."""
    count = dim // 20
    chosen = {
        "first": np.arange(count),
        "last": np.arange(dim - count, dim),
        "both ends": np.array([0, dim - 1]),
        "every other": np.arange(0, dim, 2),
    }[places]
    compiled, plain = codes(chosen, dim)
    assert compiled == plain


@given(st.binary(max_size=40), st.integers(1, 300), st.data())
@settings(max_examples=300, deadline=None)
def test_the_coders_read_the_same_from_any_bytes(code: bytes, dim: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, dim))
    bytes_ = np.frombuffer(code, dtype=np.uint8)
    read = [one.decode_subset(bytes_, count, dim) for one in (coder, plain_coder)]
    assert read[0].dtype == read[1].dtype
    assert_array_equal(*read)


@given(
    st.integers(2, 300), st.lists(st.tuples(st.integers(0, 299), st.integers(1, 99)), min_size=1), st.data()
)
@settings(max_examples=300, deadline=None)
def test_the_coders_write_and_read_the_same_orders(
    levels: int, runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    order = np.concatenate([np.full(length, level % levels) for level, length in runs])
    size = int(order_bytes(np.bincount(order, minlength=levels)))
    written = []
    for one in (coder, plain_coder):
        out = np.zeros(size + 16, dtype=np.uint8)
        written.append((one.encode_order(order, levels, out), out.tobytes()))
        assert_array_equal(one.decode_order(out[:size], len(order), levels), order, strict=True)
    assert written[0] == written[1]
    assert written[0][0] <= size
    other = np.frombuffer(data.draw(st.binary(max_size=40)), dtype=np.uint8)
    read = [one.decode_order(other, len(order), levels) for one in (coder, plain_coder)]
    assert_array_equal(*read, strict=True)


@given(
    seed=st.integers(0, 99),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 5)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    relu=st.booleans(),
    values=st.sampled_from(["any", "ties", "signed zeros", "not a number"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=200, deadline=None)
def test_the_pools_give_the_same(
    seed: int, shape: Any, window: tuple[int, int], relu: bool, values: str, dtype: Any
) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=shape).astype(dtype)
    if values == "ties":
        z = np.round(z)
    elif values == "signed zeros":
        z = np.copysign(dtype(0), z)
    elif values == "not a number":
        z[rng.random(shape) < 0.2] = np.nan
    pooled = (shape[0], shape[1] // window[0], shape[2] // window[1], shape[3])
    g = rng.normal(size=pooled).astype(dtype)
    made = []
    for passes in (pooling_kernels, plain_pooling):
        out, into = np.full(pooled, 7, dtype=dtype), z.copy()
        passes.forward(z, *window, relu, out)
        passes.backward(g, out, *window, relu, into)
        made.append((out.tobytes(), into.tobytes()))
    assert made[0] == made[1]


WITHOUT = """
import sys
sys.modules["numba"] = None
import torch
from flexfl.models.pooling import Pool
from flexfl.wire.subset import decode_subset, encode_subset
from flexfl.wire.order import decode_order, encode_order
import numpy as np
pool = Pool(torch.nn.MaxPool2d(2), relu=True)
z = torch.arange(-8.0, 8.0).reshape(1, 1, 4, 4)
assert pool.forward(z).flatten().tolist() == [0.0, 0.0, 5.0, 7.0]
assert decode_subset(encode_subset(np.array([2, 5]), 9), 2, 9).tolist() == [2, 5]
assert decode_order(encode_order(np.array([2, 0, 2]), 3), 3, 3).tolist() == [2, 0, 2]
"""


def test_they_are_taken_where_numba_is_not_installed() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=120)
