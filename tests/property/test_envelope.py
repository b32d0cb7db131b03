"""The cheapest budget for an accuracy, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.report.envelope import crossing, envelope, on_front

ACCURACIES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5, 0.7, 0.75, 0.8, 1.0, math.nan])


@st.composite
def grids(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    cells = math.prod(shape)
    return np.array(draw(st.lists(ACCURACIES, min_size=cells, max_size=cells))).reshape(shape)


@given(grids(), st.data())
def test_the_envelope_is_the_best_of_all_cells_that_have_no_more(
    grid: np.ndarray, data: st.DataObject
) -> None:
    along = data.draw(st.lists(st.integers(0, grid.ndim - 1), unique=True))
    found = envelope(grid, along)
    for cell in np.ndindex(grid.shape):
        allowed = [
            grid[other]
            for other in np.ndindex(grid.shape)
            if all(
                o <= c if axis in along else o == c
                for axis, (o, c) in enumerate(zip(other, cell, strict=True))
            )
            and not np.isnan(grid[other])
        ]
        assert found[cell] == max(allowed) if allowed else np.isnan(found[cell])


def lines() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    values = st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=6, unique=True).map(sorted)
    return values.flatmap(
        lambda x: st.tuples(
            st.just(np.array(x)),
            st.lists(ACCURACIES, min_size=len(x), max_size=len(x)).map(lambda y: envelope(np.array(y), [0])),
        )
    )


def height(x: float, values: np.ndarray, best: np.ndarray) -> float:
    """The envelope at x by NumPy's interpolation over the logarithm; unknown below the first cell."""
    known = ~np.isnan(best)
    if not known.any() or x < values[known][0]:
        return -math.inf
    return float(np.interp(math.log(x), np.log(values[known]), best[known]))


@given(lines(), st.floats(0.01, 1.0))
def test_the_cheapest_value_reaches_the_target_and_no_smaller_one_does(
    line: tuple[np.ndarray, np.ndarray], target: float
) -> None:
    values, best = line
    found = crossing(values, best, target)
    searched = np.geomspace(values[0], values[-1], 400)
    reaching = [x for x in searched if height(x, values, best) >= target + 1e-9]
    if found is None:
        assert not reaching
        assert not np.nanmax([*best, -1.0]) >= target
        return
    assert height(found.value * (1 + 1e-9), values, best) >= target - 1e-6
    assert all(x >= found.value * (1 - 1e-6) for x in reaching)
    assert best[found.above] >= target
    if found.below is None:
        assert found.value == values[found.above]
        assert not np.nanmax([*best[: found.above], -1.0]) >= target
    else:
        assert found.below == found.above - 1
        assert best[found.below] < target
        assert values[found.below] <= found.value <= values[found.above]


def test_by_hand() -> None:
    values = np.array([1.0, 10.0, 100.0])
    half = crossing(values, np.array([0.4, 0.6, 0.8]), 0.7)
    assert half is not None
    assert half.value == pytest.approx(10**1.5)
    assert (half.below, half.above) == (1, 2)
    exact = crossing(values, np.array([0.4, 0.6, 0.8]), 0.6)
    assert exact is not None
    assert (exact.value, exact.below, exact.above) == (10.0, 0, 1)
    tie = crossing(values, np.array([0.4, 0.6, 0.6]), 0.6)  # the cheaper of two that are as good
    assert tie is not None
    assert tie.above == 1
    assert crossing(values, np.array([0.4, 0.6, 0.8]), 0.81) is None
    linear = crossing(np.array([0.0, 4.0]), np.array([0.4, 0.8]), 0.5)  # no logarithm of 0
    assert linear is not None
    assert linear.value == pytest.approx(1.0)


@given(st.lists(st.tuples(*[st.sampled_from([1.0, 2.0, 3.0, math.nan])] * 2, ACCURACIES), max_size=7))
def test_the_front_is_what_nothing_beats(points: list[tuple[float, float, float]]) -> None:
    table = np.array(points).reshape(-1, 3)
    found = on_front(table[:, :2], table[:, 2])
    known = [not any(map(math.isnan, point)) for point in points]
    for place, (a, b, accuracy) in enumerate(points):
        beaten = any(
            known[other]
            and c <= a
            and d <= b
            and better >= accuracy
            and (c < a or d < b or better > accuracy)
            for other, (c, d, better) in enumerate(points)
        )
        assert found[place] == (known[place] and not beaten)
    for one, other in itertools.combinations(range(len(points)), 2):
        if points[one] == points[other]:
            assert found[one] == found[other]
