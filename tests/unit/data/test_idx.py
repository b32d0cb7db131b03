"""IDX files; more on corrupt ones in test_data.py."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flexfl.data.idx import FILES, read_idx, read_idx_files
from flexfl.errors import FlexFLError
from tiny_data import FASHION, idx_bytes, idx_files


@pytest.mark.parametrize("packed", [True, False])
def test_the_four_files(packed: bool) -> None:
    found = read_idx_files(idx_files(packed=packed))
    assert set(found) == set(FASHION)
    for name, array in FASHION.items():
        assert_array_equal(found[name], array, strict=True)


@pytest.mark.parametrize(
    "shape", [[], [1] * 5, [1] * 200, [0], [0, 28, 28], [0, *[2**32 - 1] * 3], [2**32 - 1] * 4]
)
def test_shapes_that_no_dataset_has(shape: list[int]) -> None:
    raw = b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + b"x" * (0 not in shape)
    with pytest.raises(FlexFLError, match="fetch the file again"):
        read_idx("images", raw)


@given(packed=st.booleans(), data=st.data())
def test_no_change_brings_out_anything_but_our_error(packed: bool, data: st.DataObject) -> None:
    raw = idx_bytes(np.arange(60, dtype=np.uint8).reshape(3, 4, 5))
    content = bytearray(gzip.compress(raw, mtime=0) if packed else raw)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
    try:
        found = read_idx(next(iter(FILES.values())), bytes(content))
    except FlexFLError:
        return
    assert found.dtype == np.uint8
    assert 1 <= found.ndim <= 4
