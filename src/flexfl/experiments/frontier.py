"""Frontiers: accuracy against budgets, as a grid of `--vary FIELD=VALUE,VALUE` × seeds on a sweep's cells."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.errors import Fault, InputError
from flexfl.experiments import sweep
from flexfl.experiments.cell import Cell
from flexfl.experiments.finished import finished_run
from flexfl.parameters import as_number, is_number
from flexfl.report.frontier import Frontier
from flexfl.report.frontier_cells import Axis, Point
from flexfl.report.targets import target_faults
from flexfl.spec.load import apply_overrides, load_given, merged, seeds_of
from flexfl.spec.schema import parse, place_of
from flexfl.units import parse_amount

MOST_AXES = 3
_EXAMPLE = "for example --vary budget.uplink=0.0025,0.005,0.01"


@dataclass(frozen=True)
class Grid:
    """What a frontier runs.

    Attributes:
        name: The name of the spec.
        axes: The settings that vary.
        cells: The runs, seed by seed; within a seed in the order of `numpy.ndindex` over the axes.
        targets: Test accuracies to reach.
    """

    name: str
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    targets: tuple[float, ...]

    def frontier(self) -> Frontier:
        """Return the results of the runs that are finished."""
        places = list(np.ndindex(*(len(axis.values) for axis in self.axes)))
        points = []
        for number, place in enumerate(places):
            cells = self.cells[number :: len(places)]
            runs = tuple(run for cell in cells if (run := finished_run(cell)) is not None)
            points.append(Point(place, cells[0].name.rpartition(", seed ")[0], runs))
        return Frontier(self.name, self.axes, tuple(points), self.targets)


def load_grid(
    source: str,
    vary: Sequence[str],
    out: Path,
    *,
    seeds: str = "",
    overrides: Sequence[str] = (),
    targets: Sequence[float] = (),
) -> Grid:
    """Return the grid of a frontier.

    Args:
        source: The name of a spec that ships, or a TOML file.
        vary: Settings with their values, each "section.key=value,value"; values are TOML, or else plain text
            such as 20 MB.
        out: The folder of the runs.
        seeds: As people write them: "1-3"; by default the seed of the spec.
        overrides: Settings of all cells, each "section.key=value".
        targets: Test accuracies to reach.

    Raises:
        InputError: Lists what is wrong with the command, else with the spec, else with the cells.
    """
    faults = target_faults(targets)
    axes = _axes(vary, faults)
    if targets and axes and not any(axis.is_budget for axis, _ in axes):
        rule, remedy = "needs a budget that varies", "add --vary budget.uplink=…, or leave the target out"
        faults.append(Fault("--target", rule, [axis.field for axis, _ in axes], remedy))
    try:
        numbers = seeds_of(seeds, "--seeds")
    except InputError as error:
        numbers, faults = (), [*faults, *error.faults]
    if faults:
        raise InputError(faults, "the command")
    given = apply_overrides(load_given(source), overrides)
    spec = parse(given, where=source)
    _refuse_unknown(given, axes)
    numbers = numbers or (spec.train.seed,)
    grid = tuple(sweep.Axis(tuple(axis.field.split(".")), values) for axis, values in axes)
    name = Path(source).stem
    try:
        cells = sweep.Sweep(given, name, numbers, grid, {"": {}}).cells(out)
    except InputError as error:
        raise InputError(error.faults, "the command") from error
    return Grid(name, tuple(axis for axis, _ in axes), tuple(cells), tuple(dict.fromkeys(targets)))


def _refuse_unknown(given: Mapping[str, Any], axes: Sequence[tuple[Axis, list[Any]]]) -> None:
    """Raise if a field is none of the spec's: once, and not for each of its values."""
    faults: list[Fault] = []
    for axis, values in axes:
        change = sweep.Axis(tuple(axis.field.split(".")), values).change(values[0])
        try:
            parse(merged(given, change))
        except InputError as error:
            faults += [fault for fault in error.faults if fault.rule.startswith("is not a")]
    if faults:
        raise InputError(faults, "the command")


def _axes(vary: Sequence[str], faults: list[Fault]) -> list[tuple[Axis, list[Any]]]:
    """Return the axes with their values as a spec has them, both in increasing order."""
    found: dict[str, tuple[Axis, list[Any]]] = {}
    for text in vary:
        field, equals, listed = (part.strip() for part in text.partition("="))
        parts = [part.strip() for part in field.split(".")]
        if not equals or len(parts) < 2 or not all(parts):
            place = place_of(field) if equals else None
            example = f"write --vary {place}={listed}" if place else _EXAMPLE
            faults.append(Fault("--vary", "must read section.key=value,value", text, example))
        elif field in found:
            faults.append(Fault("--vary", f"must name {field} once", text, "list all its values together"))
        elif field == "train.seed":
            faults.append(Fault("--vary", "must not be the seed", text, "give --seeds 1-3"))
        elif (axis := _axis(field, listed, faults)) is not None:
            found[field] = axis
    if not vary or len(vary) > MOST_AXES:
        rule = f"must be given once to {MOST_AXES} times"
        faults.append(
            Fault("--vary", rule, list(vary), _EXAMPLE if not vary else "use flexfl sweep for more")
        )
    return list(found.values())


def _axis(field: str, listed: str, faults: list[Fault]) -> tuple[Axis, list[Any]] | None:
    """Return an axis with its values as a spec has them; or None, and what is wrong in `faults`."""
    values, option = values_in(listed), f"--vary {field}"
    if not values:
        faults.append(Fault(option, "must list at least one value", listed, _EXAMPLE))
        return None
    numbers, kinds = list[float](), dict[tuple[str, str], Any]()
    for value in values:
        try:
            number, kind = _number(value)
        except ValueError as error:
            faults.append(Fault(option, str(error), value, as_number(value) or _EXAMPLE))
            return None
        numbers.append(number)
        kinds.setdefault(kind, value)
    if len(kinds) > 1:
        rule, remedy = "must list values that can be compared", "write all as numbers, or all for the same"
        faults.append(Fault(option, rule, list(kinds.values()), remedy))
        return None
    ordered = sorted(zip(numbers, values, strict=True), key=lambda pair: pair[0])
    for (low, _), (high, value) in itertools.pairwise(ordered):
        if _same(low, high):
            faults.append(Fault(option, "must list each value once", value, "remove one of the two"))
            return None
    ((unit, per),) = kinds
    period, scale = _period(values, per)
    texts = tuple(_text(value) for _, value in ordered)
    axis = Axis(field, tuple(number * scale for number, _ in ordered), texts, unit, period)
    return axis, [value for _, value in ordered]


def _text(value: Any) -> str:
    """Return a value as it is shown: 0.01 rather than 1e-02, but with all its digits."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-12)


def values_in(listed: str) -> list[Any]:
    """Return the values in a text: TOML, or else plain text, separated by commas.

    >>> values_in("0.1, 0.2"), values_in("20 MB, 50 MB")
    ([0.1, 0.2], ['20 MB', '50 MB'])
    """
    try:
        return list(tomllib.loads(f"values = [{listed}]")["values"])
    except tomllib.TOMLDecodeError:
        return [_value(part.strip()) for part in listed.split(",") if part.strip()]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _number(value: Any) -> tuple[float, tuple[str, str]]:
    """Return a value as a number, with its unit and what it is for; a rate is per second.

    >>> _number(3), _number("2 kB / iteration"), _number("1 MB / hour")[1]
    ((3.0, ('', '')), (2000.0, ('byte', 'iteration')), ('byte', 'time'))

    Raises:
        ValueError: It is neither a finite number nor an amount; the message is a rule.
    """
    if is_number(value) and math.isfinite(value):
        return float(value), ("", "")
    if not isinstance(value, str):
        raise ValueError("must list finite numbers, or amounts with a unit such as 20 MB")
    amount = parse_amount(value)
    rate = amount.value / amount.seconds if amount.per == "time" else amount.value
    return rate, (amount.unit, amount.per)


def _period(values: Sequence[Any], per: str) -> tuple[str, float]:
    """Return what amounts are for, as the first of them is written, and the factor from a rate to that."""
    if per != "time":
        return {"iteration": " / iteration"}.get(per, ""), 1.0
    written = re.split(r"/|\bper\b", values[0], maxsplit=1)[1].strip()
    return f" / {written}", parse_amount(values[0]).seconds
