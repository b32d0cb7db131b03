"""Files of traces: what is read from them, and what each fault is called."""

from __future__ import annotations

import numpy as np
import pytest

from flexfl.costs import tracefile
from flexfl.costs.tracefile import Layout, files_of, read_file
from flexfl.errors import InputError


def written(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


READABLE = {
    "times and values": ("0\t4.5\n0.5\t3\n2\t1.25\n", {}, [4.5, 3, 1.25], [0, 0.5, 2]),
    "values only": ("3\n\n1\n2\n", {}, [3, 1, 2], None),
    "a header": ("seconds;Mbit\n10;1\n20;2\n", {}, [1, 2], [0, 10]),
    "a header without times": ("Mbit\n1\n2\n", {}, [1, 2], None),
    "one of many columns": ("a,time,b\n7,0,1\n8,5,2\n", {"column": "a"}, [7, 8], [0, 5]),
    "columns by number": ("9,0,1\n8,5,2\n", {"time": 2, "column": 3}, [1, 2], [0, 5]),
    "timestamps": ("date,x\n2020-01-01 00:00:00,1\n2020-01-01T01:00:00+00:00,2\n", {}, [1, 2], [0, 3600]),
    "quotes, remarks, a mark of byte order": (
        '\ufeff# from a meter\n"time","the value, in kW"\n0,"1"\n1,"2"\n',
        {"column": "the value, in kW"},
        [1, 2],
        [0, 1],
    ),
    "a gap that is allowed": ("0,1\n1,1\n2,1\n500,2\n", {"max_gap": 600.0}, [1, 1, 1, 2], [0, 1, 2, 500]),
    "lines that end as on Windows": ("0,1\r\n1,2\r\n", {}, [1, 2], [0, 1]),
    "one row": ("5,1.5\n", {}, [1.5], [0]),
}


@pytest.mark.parametrize(("text", "layout", "values", "times"), READABLE.values(), ids=READABLE)
def test_what_is_read(tmp_path, text, layout, values, times):
    (series,) = read_file(written(tmp_path, text), Layout(**layout))
    assert series.values.tolist() == values
    assert times is None if series.times is None else series.times.tolist() == times


def test_a_series_in_each_column_or_row(tmp_path):
    path = written(tmp_path, "time,a,b\n0,1,2\n1,3,4\n")
    assert [one.values.tolist() for one in read_file(path, Layout(series="columns"))] == [[1, 3], [2, 4]]
    ragged = written(tmp_path, "1,2,3\n4\n5,6\n", "rows.csv")
    assert [one.values.tolist() for one in read_file(ragged, Layout(series="rows"))] == [
        [1, 2, 3],
        [4],
        [5, 6],
    ]


FAULTS = {
    "NaN": ("0,1\n1,nan\n2,1\n", {}, "must have finite numbers (…, line 2), got 'nan'; correct that line"),
    "infinite": ("0,1\n1,inf\n", {}, "must have finite numbers (…, line 2), got 'inf'"),
    "no number": ("0,1\n1,\n", {}, "must have finite numbers (…, line 2), got ''"),
    "a decimal comma": ("0;1\n1;1,5\n", {}, "must have finite numbers (…, line 2), got '1,5'; use a point"),
    "negative": ("x\n# note\n1\n-2\n", {}, "must have values ≥ 0 (…, line 4), got '-2'"),
    "time that falls": (
        "0,1\n5,1\n4,1\n",
        {},
        "must have times that grow (…, line 3), got '4 after 5'; sort",
    ),
    "time that stands still": ("0,1\n5,1\n5,1\n", {}, "must have times that grow (…, line 3)"),
    "no time": ("0,1\nsoon,1\n", {}, "must have times in seconds or ISO 8601 (…, line 2), got 'soon'"),
    "infinite time": ("0,1\ninf,1\n", {}, "must have finite times (…, line 2)"),
    "a gap": (
        "0,1\n1,1\n2,1\n100,1\n",
        {},
        "must have no gap longer than 60 s (…, line 4), got '98 s'; fill",
    ),
    "a gap as the person says": (
        "0,1\n3,1\n",
        {"max_gap": 2.0},
        "must have no gap longer than 2 s (…, line 2)",
    ),
    "a short line": ("0,1\n1\n", {}, "must have 2 columns everywhere (…, line 2), got 1"),
    "empty": ("\n\n", {}, "must have at least one value (…), got 'an empty file'"),
    "a header only": ("time,x\n", {}, "must have at least one value (…), got 'a header only'"),
    "not UTF-8": (b"0,1\n1,\xff\n", {}, "must be text in UTF-8 (…), got 'byte 6'; convert it"),
    "an open quote": ('0,1\n1,"2\n3,4\n', {}, "must be a table with one row in a line (…)"),
    "no such column": ("t,x\n0,1\n", {"column": "y"}, "column must be a column of …, got 'y'; it has t, x"),
    "no such number": ("0,1\n", {"column": 3}, "column must be a column of …, got 3; it has 1 to 2"),
    "no such time": ("t,x\n0,1\n", {"time": "when"}, "time must be a column of …, got 'when'"),
    "which column": (
        "time,x,y\n0,1,2\n",
        {},
        "column must say which column has the values (… has time, x, y)",
    ),
}


@pytest.mark.parametrize(("text", "layout", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_name_file_line_rule_and_remedy(tmp_path, text, layout, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_file(path, Layout(**layout))
    (fault,) = error.value.faults
    expected = message.replace("…", str(path))
    expected = expected if expected.startswith(("column ", "time ")) else f"path {expected}"
    assert str(fault).startswith(expected)


def test_huge_files_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tracefile, "MOST_BYTES", 10)
    with pytest.raises(InputError, match=r"must have files of at most 10 bytes .*, got 12; split or thin"):
        read_file(written(tmp_path, "0,1\n1,2\n2,3\n"), Layout())


def test_files_of_a_path_a_folder_and_a_pattern(tmp_path):
    for name in ("b.csv", "a.csv", "LICENSE", ".hidden", "README.md"):
        written(tmp_path, "1\n", name)
    assert [file.name for file in files_of(str(tmp_path))] == ["a.csv", "b.csv"]
    assert [file.name for file in files_of(str(tmp_path / "*.csv"))] == ["a.csv", "b.csv"]
    assert [file.name for file in files_of(str(tmp_path / "b.csv"))] == ["b.csv"]
    for nothing in (tmp_path / "none.csv", tmp_path / "*.tsv"):
        with pytest.raises(InputError, match=r"path must name a file, .* check the path"):
            files_of(str(nothing))


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tracefile, "MOST_FILES", 1)
    for name in ("a.csv", "b.csv"):
        written(tmp_path, "1\n", name)
    with pytest.raises(InputError, match="must name at most 1 files, got 2; give a narrower pattern"):
        files_of(str(tmp_path))


def test_numbers_are_those_of_the_file(tmp_path):
    drawn = np.random.default_rng(0).exponential(size=(500, 2)).cumsum(axis=0)
    path = written(tmp_path, "\n".join(f"{a!r}\t{b!r}" for a, b in drawn.tolist()))
    (series,) = read_file(path, Layout(max_gap=100.0))
    assert np.array_equal(series.values, drawn[:, 1])
    assert np.array_equal(series.times, drawn[:, 0] - drawn[0, 0])
