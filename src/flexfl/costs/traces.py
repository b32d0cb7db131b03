"""Traces: values over time, from files or from a list in the spec, a series for each client.

A trace is a parameter of costs (`bandwidth`, `carbon`, `money`, `available`); it is no cost itself. What is
drawn (which series a client has, where it begins) comes from named streams that do not depend on the knob:
a client that is away is away for computing and for sending.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from flexfl.arrays import FloatArray, IntArray
from flexfl.costs.tracefile import MOST_VALUES, Layout, Series, files_of, read_file
from flexfl.errors import Fault, InputError
from flexfl.parameters import FilePath, Measure, above_zero
from flexfl.registry import Family, for_pydantic
from flexfl.streams import Entities, Moment

_SECONDS = Measure("must be > 0 and finite", above_zero, 'for example "10 min"', unit="second")
_Seconds = Annotated[float, _SECONDS]
_MaybeSeconds = Annotated[float | None, replace(_SECONDS, optional=True)]


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """M series of any lengths, one behind the other, so that N clients look theirs up at once.

    Attributes:
        values: of all series.
        times: seconds since the first value of their series.
        starts: where each series begins, (M,).
        lengths: of each series, (M,).
        periods: seconds from the first value to the end of the last, which lasts as the mean of the others.
        bases: added to the times of each series, they make all times grow.
    """

    values: FloatArray
    times: FloatArray
    starts: IntArray
    lengths: IntArray
    periods: FloatArray
    bases: FloatArray

    @classmethod
    def of(cls, series: Sequence[Series], step: float) -> SeriesTable:
        """Return the table of these series; where there are no times, values are `step` seconds apart."""
        lengths = np.array([len(one.values) for one in series])
        times = [np.arange(len(one.values)) * step if one.times is None else one.times for one in series]
        periods = np.array([t[-1] * len(t) / (len(t) - 1) if len(t) > 1 else step for t in times])
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        bases = np.concatenate([[0.0], np.cumsum(periods + 1.0)[:-1]])
        values = np.concatenate([one.values for one in series])
        return cls(values, np.concatenate(times), starts, lengths, periods, bases)

    def __deepcopy__(self, memo: Any) -> SeriesTable:
        return self  # nothing changes it

    @cached_property
    def _keys(self) -> FloatArray:
        return np.asarray(self.times + np.repeat(self.bases, self.lengths))

    @cached_property
    def digest(self) -> str:
        """What tells two tables apart."""
        parts = (self.values, self.times, self.lengths)
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=6).hexdigest()

    def by_row(self, which: IntArray, row: int, start: FloatArray, *, wrap: bool) -> FloatArray:
        """Return the values in that row of each one's series, counted from `start`, a share of it."""
        length = self.lengths[which]
        place = row + (start * length).astype(np.int64)
        place = place % length if wrap else np.minimum(place, length - 1)
        return np.asarray(self.values[self.starts[which] + place])

    def by_time(
        self, which: IntArray, seconds: float, start: FloatArray, *, wrap: bool, linear: bool
    ) -> FloatArray:
        """Return the values at that time: the last one before it, or on the line to the next one."""
        first, period = self.starts[which], self.periods[which]
        last = first + self.lengths[which] - 1
        now = seconds + start * period
        now = np.mod(now, period) if wrap else np.minimum(now, self.times[last])
        found = np.searchsorted(self._keys, now + self.bases[which], side="right") - 1
        place = np.clip(found, first, last)
        if not linear:
            return np.asarray(self.values[place])
        end = place == last
        following = np.where(end, first, place + 1)
        until = np.where(end, period, self.times[following])
        share = (now - self.times[place]) / (until - self.times[place])
        share = np.clip(share, 0.0, 1.0) if wrap else np.where(end, 0.0, np.clip(share, 0.0, 1.0))
        return np.asarray(self.values[place] + share * (self.values[following] - self.values[place]))

    def means(self, *, by_time: bool, linear: bool) -> FloatArray:
        """Return the mean value of each series: of its rows, or over its time, (M,)."""
        splits = self.starts[1:]
        pairs = zip(np.split(self.values, splits), np.split(self.times, splits), self.periods, strict=True)
        if not by_time:
            return np.array([values.mean() for values, _, _ in pairs])
        found = []
        for values, times, period in pairs:
            steps = np.diff(times, append=period)
            height = (values + np.roll(values, -1)) / 2 if linear else values
            found.append(float(height @ steps / period))
        return np.array(found)


@dataclass(frozen=True)
class Trace:
    """Values over time, from files or as a list; a series for each client.

    Attributes:
        path: a file, a folder, or a pattern such as "3g/*"; in the file of a spec, relative to that file.
        values: the values themselves, instead of a path.
        column: of the values, by name, or by number from 1 on; needed where a file has several.
        time: the column of the times, in seconds or as ISO timestamps; found by its name if left out.
        series: what holds one series: each of the "files", or the "columns" or "rows" of each file.
        assign: "draw" for a series drawn for each client, "each" for as many as there are clients, in order.
        by: "iteration" for one row in each iteration, "clock" for the value at that second of the run.
        interval: seconds that an iteration lasts by "clock" in a run without a clock.
        step: seconds between two values that have no times.
        hold: "step" keeps a value until the next one, "linear" goes there on a line; by "clock" only.
        end: "repeat" begins again at the end, "last" keeps the last value.
        random_start: whether each client begins at a place of its series that is drawn.
        max_gap: the longest time between two rows; by default 60 times the median.
    """

    path: FilePath | None = None
    values: list[float] | None = None
    column: str | int | None = None
    time: str | int | None = None
    series: Literal["files", "columns", "rows"] = "files"
    assign: Literal["draw", "each"] = "draw"
    by: Literal["iteration", "clock"] = "iteration"
    interval: _Seconds = 1.0
    step: _Seconds = 1.0
    hold: Literal["step", "linear"] = "step"
    end: Literal["repeat", "last"] = "repeat"
    random_start: bool = False
    max_gap: _MaybeSeconds = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.values is None):
            raise ValueError("needs either path or values")
        if self.hold == "linear" and self.by == "iteration":
            raise ValueError('hold = "linear" needs by = "clock"')

    def prepare(self, entities: Entities) -> None:
        """Read and check the values before any work starts.

        Raises:
            InputError: names the file, the line, the rule and the remedy.
        """
        found = len(self.table.lengths)
        if self.assign == "each" and found not in (1, entities.population):
            whom = "the server" if entities.server else f"the {entities.population} clients"
            raise InputError([Fault("assign", f"must have a series for each of {whom}", found, 'or "draw"')])

    @cached_property
    def table(self) -> SeriesTable:
        """The values; read when first asked for."""
        if self.values is not None:
            values = np.array(self.values, dtype=float)
            if not (values.size and np.isfinite(values).all() and (values >= 0).all()):
                rule = "must be finite numbers ≥ 0, at least one"
                raise InputError([Fault("values", rule, self.values, "correct them")], "the trace")
            return SeriesTable.of([Series(values)], self.step)
        assert self.path is not None
        stamps = [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in files_of(self.path)]
        return _read(tuple(stamps), Layout(self.column, self.time, self.series, self.max_gap), self.step)

    @property
    def contents(self) -> str:
        """What tells apart two traces of the same name."""
        return self.table.digest

    @property
    def mean(self) -> FloatArray:
        """The mean value: (N,) where each client has its own series, else over all series, ()."""
        means = self.table.means(by_time=self.by == "clock", linear=self.hold == "linear")
        return means if self.assign == "each" and len(means) > 1 else np.asarray(means.mean())

    def at(self, moment: Moment, purpose: str) -> FloatArray:
        """Return the value now for each entity; `purpose` names the streams that series are drawn from."""
        which, start = self._drawn(moment, purpose)
        wrap = self.end == "repeat"
        if self.by == "iteration":
            return self.table.by_row(which, moment.iteration, start, wrap=wrap)
        seconds = moment.iteration * self.interval if np.isnan(moment.seconds) else moment.seconds
        return self.table.by_time(which, seconds, start, wrap=wrap, linear=self.hold == "linear")

    @cached_property
    def _last_drawn(self) -> list[Any]:
        return [None, None, None]

    def _drawn(self, moment: Moment, purpose: str) -> tuple[IntArray, FloatArray]:
        """Return each entity's series, and where in it the run begins, as a share."""
        who, streams, found = self._last_drawn
        if who is moment.entities and streams is moment.streams:
            return found  # type: ignore[no-any-return]
        count = len(self.table.lengths)
        role = "trace of the server" if moment.entities.server else "trace"
        fixed = replace(moment, role=role, iteration=0)
        if count == 1:
            which = np.zeros(moment.shape, dtype=np.int64)
        elif self.assign == "each":
            which = np.asarray(moment.entities.numbers)
        else:
            which = (fixed.uniform(f"{purpose}/series") * count).astype(np.int64)
        start = fixed.uniform(f"{purpose}/start") if self.random_start else np.zeros(moment.shape)
        self._last_drawn[:] = moment.entities, moment.streams, (which, start)
        return which, start


@lru_cache(maxsize=8)
def _read(stamps: tuple[tuple[Path, int, int], ...], layout: Layout, step: float) -> SeriesTable:
    """Return the series of files, which are read again only if they have changed."""
    found: list[Series] = []
    count = 0
    for file, _, _ in stamps:
        more = read_file(file, layout)
        found, count = found + more, count + sum(len(one.values) for one in more)
        if count > MOST_VALUES:
            rule = f"must have at most {MOST_VALUES} values in all"
            raise InputError([Fault("path", rule, f"more in {file}", "give fewer files")], "the trace")
    return SeriesTable.of(found, step)


TRACES = Family("trace", {"trace": Trace})


def _checked(given: Any) -> dict[str, Any]:
    """Return a trace as a spec has it, a path, a list or a table, with all its parameters; nothing is read.

    Raises:
        InputError: lists all faults.
    """
    table = {"path": given} if isinstance(given, str) else {"values": given} if _is_list(given) else given
    if not isinstance(table, Mapping):
        rule = "must be a path, a list of values, or a table with a path"
        raise InputError([Fault("trace", rule, given, 'for example trace = "3g/*.csv"')])
    found = TRACES.resolve({"kind": "trace"} | dict(table), "trace")
    return {name: value for name, value in found.items() if name != "kind"}


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple | np.ndarray)


def _for_spec(given: Any) -> dict[str, Any] | None:
    return None if given is None else for_pydantic("trace", lambda: _checked(given))


TraceTable = Annotated[str | list[float] | dict[str, Any] | None, BeforeValidator(_for_spec)]
"""A parameter of a cost: a path, a list of values, or a table with the parameters of `Trace`."""


def open_trace(given: Any) -> Trace | None:
    """Return the trace that a parameter names; nothing is read yet."""
    if given is None or isinstance(given, Trace):
        return given
    made: Trace = TRACES.make({"kind": "trace"} | _checked(given), "trace")
    return made
