"""Traces: the value now for each client, against a plain loop; who has which; what tells them apart."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.costs.tracefile import Series
from flexfl.costs.traces import SeriesTable, Trace, open_trace
from flexfl.errors import InputError
from flexfl.streams import Entities, Streams

SERIES = st.lists(
    st.lists(st.tuples(st.floats(0.01, 50), st.floats(0, 1e6)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)
CHOICES = st.tuples(st.booleans(), st.booleans())


def table_of(drawn):
    """Return a table, and its series as plain lists of times and values."""
    plain = []
    for rows in drawn:
        times = np.cumsum([0.0, *(step for step, _ in rows[:-1])])
        plain.append((times.tolist(), [value for _, value in rows]))
    return SeriesTable.of([Series(np.array(v), np.array(t)) for t, v in plain], 1.0), plain


def by_hand(times, values, now, wrap, linear):
    """Return the value at a time, by looking at one row after the other."""
    rows = len(times)
    period = times[-1] * rows / (rows - 1) if rows > 1 else 1.0
    now = now % period if wrap else min(now, times[-1])
    place = max(n for n in range(rows) if times[n] <= now)
    if not linear or (place == rows - 1 and not wrap):
        return values[place]
    until, following = (period, values[0]) if place == rows - 1 else (times[place + 1], values[place + 1])
    return values[place] + (now - times[place]) / (until - times[place]) * (following - values[place])


@given(SERIES, CHOICES, st.floats(0, 1000), st.integers(0, 4), st.floats(0, 0.999))
def test_by_clock_as_by_hand(drawn, choices, seconds, shift, start):
    table, plain = table_of(drawn)
    wrap, linear = choices
    which = (np.arange(8) + shift) % len(plain)
    found = table.by_time(which, seconds, np.full(8, start), wrap=wrap, linear=linear)
    for value, place in zip(found, which, strict=True):
        times, values = plain[place]
        # Where a row begins, rounding decides which one counts: both sides are right.
        period = times[-1] * len(times) / (len(times) - 1) if len(times) > 1 else 1.0
        moments = near_to(seconds + start * period)
        near = [by_hand(times, values, max(0.0, now), wrap, linear) for now in moments]
        assert min(near) - 1e-6 * max(near) <= value <= max(near) * (1 + 1e-6)


def near_to(seconds):
    return [seconds, seconds + 1e-9 * (1 + seconds), seconds - 1e-9 * (1 + seconds)]


@given(SERIES, st.booleans(), st.integers(0, 50), st.floats(0, 0.999))
def test_by_row_as_by_hand(drawn, wrap, row, start):
    table, plain = table_of(drawn)
    which = np.arange(len(plain))
    found = table.by_row(which, row, np.full(len(plain), start), wrap=wrap)
    for value, (_, values) in zip(found, plain, strict=True):
        place = row + math.floor(start * len(values))
        assert value == values[place % len(values) if wrap else min(place, len(values) - 1)]


@pytest.mark.parametrize("linear", [False, True])
def test_means_are_those_of_many_moments(linear):
    table, _ = table_of([[(1.0, 4.0), (3.0, 1.0), (0.5, 8.0)], [(1.0, 2.0)]])
    shares = (np.arange(30_000) + 0.5) / 30_000
    for place, mean in enumerate(table.means(by_time=True, linear=linear)):
        values = table.by_time(np.full(30_000, place), 0.0, shares, wrap=True, linear=linear)
        assert mean == pytest.approx(values.mean(), rel=1e-3)
    assert table.means(by_time=False, linear=False).tolist() == pytest.approx([13 / 3, 2.0])


def moment(t=0, clients=50, seconds=math.nan, role="uplink", seed=1):
    return Streams(seed).moment(role, t, 10, Entities.all_clients(clients), seconds)


@pytest.fixture
def folder(tmp_path):
    for n in range(5):
        (tmp_path / f"{n}.csv").write_text("\n".join(f"{10 * i},{n}" for i in range(1, 4)))
    return tmp_path


def test_each_client_draws_a_series_that_stays_the_same_for_all_knobs(folder):
    trace = Trace(path=str(folder))
    first = trace.at(moment(), "x")
    assert set(first) == {0, 1, 2, 3, 4}
    for role in ("uplink", "compute"):
        assert np.array_equal(Trace(path=str(folder)).at(moment(7, role=role), "x"), first)
    assert not np.array_equal(Trace(path=str(folder)).at(moment(), "y"), first)
    assert not np.array_equal(Trace(path=str(folder)).at(moment(seed=2), "x"), first)
    alone = [Trace(path=str(folder)).at(moment().of(n), "x") for n in range(50)]
    assert np.array_equal(alone, first)


def test_one_series_for_each_client(folder):
    trace = Trace(path=str(folder), assign="each")
    assert trace.at(moment(clients=5), "x").tolist() == [0, 1, 2, 3, 4]
    assert trace.mean.tolist() == [0, 1, 2, 3, 4]
    trace.prepare(Entities.all_clients(5))
    with pytest.raises(InputError, match="assign must have a series for each of the 6 clients, got 5"):
        trace.prepare(Entities.all_clients(6))
    assert Trace(path=str(folder)).mean == 2.0


def test_a_start_that_is_drawn():
    trace = Trace(values=[0.0, 1.0, 2.0, 3.0], random_start=True)
    first, second = trace.at(moment(0), "x"), trace.at(moment(1), "x")
    assert set(first) == {0, 1, 2, 3}
    assert np.array_equal(second, (first + 1) % 4)


def test_a_run_without_a_clock_takes_the_interval():
    trace = Trace(values=[5.0, 6.0, 7.0], step=60.0, by="clock", interval=30.0)
    found = [float(trace.at(moment(t, clients=1), "x")[0]) for t in range(7)]
    assert found == [5, 5, 6, 6, 7, 7, 5]
    assert trace.at(moment(0, clients=1, seconds=130.0), "x") == 7.0


def test_a_single_value_and_the_last_one():
    assert Trace(values=[3.0], by="clock").at(moment(9, clients=2), "x").tolist() == [3.0, 3.0]
    ended = Trace(values=[3.0, 4.0], end="last")
    assert [float(ended.at(moment(t, clients=1), "x")[0]) for t in range(4)] == [3, 4, 4, 4]


def test_contents_tell_files_apart_and_are_read_again_when_they_change(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("0,1\n1,2\n")
    first = Trace(path=str(path)).contents
    assert Trace(path=str(path)).contents == first
    path.write_text("0,1\n1,2.5\n")
    assert Trace(path=str(path)).contents != first


def test_copies_share_what_was_read(folder):
    trace = Trace(path=str(folder))
    trace.prepare(Entities.all_clients(3))
    assert copy.deepcopy(trace).table is trace.table


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs either path or values"),
        ({"path": "a", "values": [1.0]}, "needs either path or values"),
        ({"values": [1.0], "hold": "linear"}, 'hold = "linear" needs by = "clock"'),
        ({"values": [1.0], "by": "day"}, "trace.by must be 'iteration' or 'clock'"),
        ({"values": [1.0], "pth": "a"}, "trace.pth is not a parameter of trace, .* did you mean path"),
        ({"values": [1.0], "interval": "3 kg"}, "trace.interval has the unit kg, which is not known"),
        (5, "trace must be a path, a list of values, or a table with a path, got 5"),
    ],
)
def test_a_table_is_checked_before_anything_is_read(given, message):
    with pytest.raises(InputError, match=message):
        open_trace(given)


@pytest.mark.parametrize("values", [[], [-1.0], [math.nan], [math.inf]])
def test_values_are_checked(values):
    with pytest.raises(InputError, match="values must be finite numbers ≥ 0, at least one"):
        open_trace(values).prepare(Entities.all_clients(1))
