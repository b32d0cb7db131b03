"""The compiled passes of levels and of bounds, against plain numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flexfl.compress.levels import BINS, DIGITS, LIMITS, Levels, bins_of, fitting
from flexfl.control.binned import MARGIN
from flexfl.control.objective import Objective
from flexfl.control.search import _grid, _reach
from flexfl.costs import Affine
from flexfl.sim import process
from flexfl.sim.level_bins import ascending, histogram_of, inside_of, suffixes
from flexfl.sim.level_kernels import search
from flexfl.sim.level_residuals import LevelResiduals
from flexfl.sim.level_sending import move

WORDS = {"float32": np.uint32, "float64": np.uint64}


def shift_of(dtype: str) -> int:
    return (23 if dtype == "float32" else 52) - DIGITS


def a_vector(dtype: str, size: int = 700, seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(size) * np.exp(3 * rng.standard_normal(size))
    drawn[:5] = [0.0, -0.0, 5e-324, drawn[7], -drawn[7]]
    return drawn.astype(dtype)


@pytest.mark.parametrize("word", [np.uint32, np.uint64])
@pytest.mark.parametrize("most", [0, 1, 2047, 2048, 2**20, 2**31])
def test_ascending_is_a_sort(word: type, most: int) -> None:
    codes = np.random.default_rng(most).integers(0, most, size=1000, endpoint=True).astype(word)
    wanted = np.sort(codes)
    np.testing.assert_array_equal(ascending(codes.copy()), wanted)
    assert not len(ascending(codes[:0]))
    whole = np.append(codes, np.iinfo(word).max)
    np.testing.assert_array_equal(ascending(whole.copy()), np.sort(whole))


@pytest.mark.parametrize("dtype", WORDS)
def test_bins_hold_what_they_should(dtype: str) -> None:
    vector, shift = a_vector(dtype), shift_of(dtype)
    ordered, u = vector.view(WORDS[dtype]), bins_of(vector)
    found, top = histogram_of(vector, ordered, shift, BINS)
    assert top == u.max()
    fit, size = fitting(vector, u), np.abs(vector).astype(np.float64)
    place = (u - (top - BINS + 1))[fit]
    for part, weights in enumerate((np.ones_like(size), size, size**2)):
        wanted = np.bincount(place, weights=weights[fit], minlength=BINS)
        np.testing.assert_allclose(found[:, part], wanted, rtol=1e-12)
    np.testing.assert_allclose(suffixes(found)[:-1], np.cumsum(found[::-1], axis=0)[::-1], rtol=1e-9)
    for low, high in ((0, BINS - 1), (BINS - 40, BINS - 20), (BINS - 1, BINS - 1)):
        chosen = fit & (u - (top - BINS + 1) >= low) & (u - (top - BINS + 1) <= high)
        number = int(found[low : high + 1, 0].sum())
        inside = inside_of(ordered, shift, top - BINS + 1, low, high, number).view(dtype)
        np.testing.assert_array_equal(inside, np.sort(np.abs(vector[chosen])))


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("dim", [1, 30, 5000])
def test_what_is_sent_leaves_the_rows(dtype: str, dim: int) -> None:
    shift, levels, rng = shift_of(dtype), 4, np.random.default_rng(dim)
    rows = rng.standard_normal((4, dim)).astype(dtype)
    rows[2, ::3] = rows[2, 0]  # equal magnitudes, of which the first ones go
    senders, weights = np.array([0, 2]), np.array([0.25, 2.0], dtype=dtype)
    cut = np.array([np.median(np.abs(rows[0])) / 2, abs(rows[2, 0])], dtype=dtype)
    last = np.array([-1, dim // 2])
    sent = [np.abs(rows[0]) > cut[0], np.abs(rows[2]) > cut[1]]
    sent[1] |= (np.abs(rows[2]) == cut[1]) & (np.arange(dim) <= last[1])
    means = np.sort(rng.uniform(0.1, 2, (2, levels)), axis=1).astype(dtype)
    u = bins_of(rows)
    low, top = (np.array([take(u[s][m]) for s, m in zip(senders, sent, strict=True)]) for take in (min, max))
    after, total = rows.copy(), np.ones(dim, dtype=dtype)
    wanted_rows, wanted = rows.copy(), total.copy()
    for i, row in enumerate(senders):
        cells = (u[row][sent[i]] - low[i]) * levels // (top[i] - low[i] + 1)
        arrived = np.zeros(dim, dtype=dtype)
        arrived[sent[i]] = np.copysign(means[i][cells], rows[row][sent[i]])
        wanted_rows[row] -= arrived
        wanted += weights[i] * arrived
    bits, each = after.view(WORDS[dtype]), np.full(2, levels)
    move(after, bits, shift, senders, cut, last, each, low, top, means, weights, total)
    np.testing.assert_array_equal(after, wanted_rows)
    np.testing.assert_allclose(total, wanted, rtol=1e-6, atol=1e-6)  # a sum may be fused on other CPUs


def test_bounds_rule_out_no_edge_that_is_the_best() -> None:
    # With a table of the same prices nothing is ruled out by a bound: both find the same.
    rows = np.stack([a_vector("float64", 3000, seed) for seed in range(12)])
    residuals = LevelResiduals(rows, Levels(), counts="bytes")
    energy, every = np.square(rows).sum(axis=1), np.arange(len(rows))
    slope = energy / 3000 * np.geomspace(0.01, 1000, len(rows))
    fixed, V, reach = energy * 1e-3, np.ones(len(rows)), np.full(len(rows), 3000)
    given = (rows, rows.view(np.uint64), shift_of("float64"), every, BINS, LIMITS, energy, reach)
    none = np.zeros((len(rows), 0))
    by_price = search(*given, (V, fixed, slope, 1.0), none, residuals._tables)
    nbytes = np.arange(residuals._longest + 1)
    table = np.where(nbytes > 0, fixed[:, None] + slope[:, None] * nbytes, 0.0)
    by_table = search(*given, (V, 0 * V, 0 * V, 1.0), table, residuals._tables)
    for one, other in zip(by_price, by_table, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert 0 < np.count_nonzero(by_price[0]) < len(rows)


def test_the_compiled_reach_is_what_the_bound_says() -> None:
    rows = np.stack([a_vector("float64", 900, seed) for seed in range(30)])
    rows[3], rows[4, 0] = 0.0, np.inf
    residuals = LevelResiduals(rows, Levels(), counts="bits")
    residuals.expect(np.full(len(rows), 1.0))
    slope = np.where(np.isfinite(rows).all(axis=1), np.square(rows).sum(axis=1), 1.0)
    slope = slope / 900 * np.geomspace(0.001, 100, len(rows))
    objective = Objective(1.0, 1.0, Affine(0.1 * slope, slope), (len(rows),), residuals.sizes_of)
    compiled = residuals.reach(objective, _grid(900), MARGIN)
    residuals.reach = lambda *_: None  # type: ignore[method-assign]
    np.testing.assert_array_equal(compiled, _reach(objective, residuals))
    assert 0 < np.count_nonzero(compiled) < len(rows)


def test_passes_that_another_file_is_built_into_are_forgotten_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "__file__", str(tmp_path / "process.py"))
    kept = tmp_path / "__pycache__"
    kept.mkdir()
    own, other = kept / "top.f-1.py311.nbi", kept / "else.f-1.py311.nbi"
    for name in ("low", "top"):
        (tmp_path / f"{name}.py").write_text("1")
    for text, left in (("1", False), ("1", True), ("2", False), ("2", True)):
        own.touch()
        other.touch()
        (tmp_path / "low.py").write_text(text)
        process.forget_stale("top", sources=("low", "top"))
        assert own.exists() == left
        assert other.exists()
