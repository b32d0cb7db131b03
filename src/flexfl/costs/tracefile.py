"""Time series in text files: separated by commas, tabs or semicolons, with or without a header.

Every value is checked before it is used; a fault names the file, the line, the rule and the remedy. Files
are read whole, so their size and number are bounded.
"""

from __future__ import annotations

import csv
import glob
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.errors import Fault, InputError

MOST_BYTES = 32 * 2**20
"""Of one file."""
MOST_FILES = 10_000
MOST_VALUES = 4_000_000
"""Of all files of a trace together."""
GAP = 60.0
"""Times the median step between two rows: a longer step is a gap, unless the person says what is."""
_TIME_NAMES = ("time", "timestamp", "datetime", "date", "seconds", "utc time")
_ASIDE = ("readme", "license", "licence")
"""Files of a folder that are no traces."""

Column = str | int | None


@dataclass(frozen=True, eq=False)
class Series:
    """Values (m,), and the seconds from the first one to each, (m,); None for a file without times."""

    values: FloatArray
    times: FloatArray | None = None


@dataclass(frozen=True)
class Layout:
    """Where a file has its values.

    Attributes:
        column: of the values, by name, or by number from 1 on; None for the only one that is no time.
        time: the column of the times; None for one with such a name, or the first of a file without header.
        series: "files" for one series in a file, "columns" for one in each column, "rows" for one in a row.
        max_gap: the longest step in seconds; None for `GAP` times the median.
    """

    column: Column = None
    time: Column = None
    series: str = "files"
    max_gap: float | None = None


def files_of(path: str) -> list[Path]:
    """Return the files that a path, a folder or a pattern names, by name.

    Raises:
        InputError: there are none, or too many.
    """
    if os.path.isdir(path):
        files = [Path(path, name) for name in os.listdir(path)]
    else:
        files = [Path(path)] if os.path.exists(path) else [Path(name) for name in glob.glob(path)]
    found = sorted(file for file in files if file.is_file() and not _is_aside(file, len(files)))
    if not found:
        raise _refused("must name a file, a folder with files, or a pattern", path, "check the path")
    if len(found) > MOST_FILES:
        raise _refused(f"must name at most {MOST_FILES} files", len(found), "give a narrower pattern")
    return found


def _is_aside(file: Path, among: int) -> bool:
    return among > 1 and (file.name.startswith(".") or file.name.lower().startswith(_ASIDE))


def read_file(file: Path, layout: Layout) -> list[Series]:
    """Return the series of a file.

    Raises:
        InputError: names the first line that breaks a rule.
    """
    header, rows = _rows(file)
    if layout.series == "rows":
        return [_row_series(file, line, cells) for line, cells in rows]
    width = len(header or rows[0][1])
    time = _time_column(file, header, width, layout)
    values = _value_columns(file, header, width, time, layout)
    for line, cells in rows:
        if len(cells) != width:
            remedy = "complete that line, or leave it out"
            raise _refused(_at(f"must have {width} columns everywhere", file, line), len(cells), remedy)
    times = None if time is None else _times(file, rows, time, layout.max_gap)
    return [Series(_values(file, rows, place), times) for place in values]


def _rows(file: Path) -> tuple[list[str] | None, list[tuple[int, list[str]]]]:
    """Return the header, if there is one, and the cells of each line with the line's number."""
    try:
        if (size := file.stat().st_size) > MOST_BYTES:
            raise _refused(
                f"must have files of at most {MOST_BYTES} bytes ({file})", size, "split or thin it out"
            )
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(f"must be text in UTF-8 ({file})", f"byte {error.start}", "convert it") from error
    except OSError as error:
        raise _refused(f"must be readable ({file})", error.strerror, "check its rights") from error
    lines = text.splitlines()
    used = [n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
    if not used:
        raise _refused(f"must have at least one value ({file})", "an empty file", "leave that file out")
    first = lines[used[0]]
    delimiter = max("\t;,", key=first.count)
    reader = csv.reader((lines[n] for n in used), delimiter=delimiter)
    try:
        rows = [(n + 1, [cell.strip() for cell in cells]) for n, cells in zip(used, reader, strict=True)]
    except (csv.Error, ValueError) as error:  # a quote that is not closed joins lines
        raise _refused(
            f"must be a table with one row in a line ({file})", str(error), "check its quotes"
        ) from error
    if all(cell == "" or _is_value(cell) for cell in rows[0][1]):
        return None, rows
    if len(rows) == 1:
        raise _refused(f"must have at least one value ({file})", "a header only", "leave that file out")
    return rows[0][1], rows[1:]


def _is_value(cell: str) -> bool:
    """Return whether it is a number or a time."""
    try:
        _seconds(cell)
    except ValueError:
        return False
    return True


def _time_column(file: Path, header: list[str] | None, width: int, layout: Layout) -> int | None:
    if layout.time is not None:
        return _place(file, header, width, layout.time, "time")
    if header is not None:
        return next((n for n, name in enumerate(header) if name.lower() in _TIME_NAMES), None)
    return 0 if width > 1 else None


def _value_columns(
    file: Path, header: list[str] | None, width: int, time: int | None, layout: Layout
) -> list[int]:
    if layout.column is not None:
        return [_place(file, header, width, layout.column, "column")]
    rest = [n for n in range(width) if n != time]
    if not rest or (len(rest) > 1 and layout.series != "columns"):
        names = ", ".join(filter(None, header)) if header else f"1 to {width}"
        rule = f"must say which column has the values ({file} has {names})"
        raise _refused(rule, None, 'for example column = "…"', field="column")
    return rest


def _place(file: Path, header: list[str] | None, width: int, column: str | int, field: str) -> int:
    if isinstance(column, str) and header and column in header:
        return header.index(column)
    if isinstance(column, int) and not isinstance(column, bool) and 1 <= column <= width:
        return column - 1
    known = f"{', '.join(header)}, or 1 to {width}" if header else f"1 to {width}, without a header"
    raise _refused(f"must be a column of {file}", column, f"it has {known}", field=field)


def _values(file: Path, rows: list[tuple[int, list[str]]], place: int) -> FloatArray:
    try:
        values = np.array([float(cells[place]) for _, cells in rows])
    except ValueError:
        values = np.array([_number(cells[place]) for _, cells in rows])
    _check(file, [line for line, _ in rows], values, [cells[place] for _, cells in rows])
    return values


def _row_series(file: Path, line: int, cells: list[str]) -> Series:
    values = np.array([_number(cell) for cell in cells])
    _check(file, [line] * len(cells), values, cells)
    return Series(values)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _check(file: Path, lines: list[int], values: FloatArray, cells: list[str]) -> None:
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        place = int(wrong[0])
        rule = "must have values ≥ 0" if values[place] < 0 else "must have finite numbers"
        remedy = "use a point" if "," in cells[place] else "correct that line, or leave it out"
        raise _refused(_at(rule, file, lines[place]), cells[place], remedy)


def _times(file: Path, rows: list[tuple[int, list[str]]], place: int, max_gap: float | None) -> FloatArray:
    """Return the seconds since the first row, checked."""
    times = np.empty(len(rows))
    for n, (line, cells) in enumerate(rows):
        try:
            times[n] = _seconds(cells[place])
        except ValueError as error:
            rule = _at("must have times in seconds or ISO 8601", file, line)
            raise _refused(rule, cells[place], "write seconds, or 2020-01-31 12:00:00") from error
        if not np.isfinite(times[n]):
            raise _refused(_at("must have finite times", file, line), cells[place], "correct that line")
    steps = np.diff(times)
    if len(wrong := np.flatnonzero(steps <= 0)):
        line, now, before = rows[wrong[0] + 1][0], rows[wrong[0] + 1][1], rows[wrong[0]][1]
        found = f"{now[place]} after {before[place]}"
        raise _refused(
            _at("must have times that grow", file, line), found, "sort the rows, keep one of each time"
        )
    bound = max_gap if max_gap is not None else GAP * float(np.median(steps)) if len(steps) else np.inf
    if len(wrong := np.flatnonzero(steps > bound)):
        rule = _at(f"must have no gap longer than {bound:g} s", file, rows[wrong[0] + 1][0])
        raise _refused(rule, f"{steps[wrong[0]]:g} s", "fill the gap, or allow it with max_gap")
    return np.asarray(times - times[0])


def _seconds(cell: str) -> float:
    """Return a time as seconds: a number, or an ISO timestamp (of UTC if it does not say)."""
    try:
        return float(cell)
    except ValueError:
        stamp = datetime.fromisoformat(cell)
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def _at(rule: str, file: Path, line: int) -> str:
    return f"{rule} ({file}, line {line})"


def _refused(rule: str, value: Any, remedy: str, field: str = "path") -> InputError:
    return InputError([Fault(field, rule, value, remedy)], "the trace")
