"""Comparisons: methods × seeds on the same data with the same budgets, each tuned over its grid first.

The runs are cells of a sweep: one folder for each method and combination of its grid, in it one for each
seed. The combination that is chosen keeps the runs that it was tuned with; nothing is computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flexfl.errors import Fault, InputError
from flexfl.experiments.cell import Cell
from flexfl.experiments.finished import finished_run
from flexfl.experiments.methods import Method, check_equal_terms, check_overrides, load_method, with_tuning
from flexfl.experiments.sweep import Sweep, folder_name
from flexfl.report.compare import Comparison, Contender, best_of
from flexfl.report.frontier_cells import Point
from flexfl.report.targets import target_faults
from flexfl.spec.load import apply_overrides, load_given, seeds_of
from flexfl.spec.schema import parse

TARGETS = (0.80, 0.85)


@dataclass(frozen=True)
class Entry:
    """A method with the runs that it may need.

    Attributes:
        method: The method.
        base: The settings of the base.
        out: The folder of the runs.
    """

    method: Method
    base: Mapping[str, Any]
    out: Path

    def cells(self, seeds: Sequence[int]) -> list[list[Cell]]:
        """Return the cells of each combination of the grid, by seed; one combination without a grid."""
        name = self.method.name
        sweep = Sweep(self.method.on(self.base), name, tuple(seeds), self.method.axes, {name: {}})
        cells = sweep.cells(self.out)
        combinations = len(cells) // len(seeds)
        return [cells[number::combinations] for number in range(combinations)]

    def points(self, seeds: Sequence[int]) -> list[Point]:
        """Return the finished runs of each combination, labelled by its settings."""
        points = []
        for number, cells in enumerate(self.cells(seeds)):
            label = cells[0].name.rpartition(", seed ")[0].removeprefix(self.method.name).removeprefix(", ")
            runs = tuple(run for cell in cells if (run := finished_run(cell)) is not None)
            points.append(Point((number,), label, runs))
        return points


@dataclass(frozen=True)
class Plan:
    """What a comparison runs.

    Attributes:
        name: The name of the base.
        entries: The methods.
        seeds: The seeds of every method.
        tune_seeds: The seeds of every combination of a grid.
        targets: Test accuracies to reach.
    """

    name: str
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    tune_seeds: tuple[int, ...]
    targets: tuple[float, ...]

    @cached_property
    def tuning(self) -> list[Cell]:
        """The cells that are run to choose settings; none if no method has a grid."""
        groups = [
            group for entry in self.entries if entry.method.axes for group in entry.cells(self.tune_seeds)
        ]
        return _seed_by_seed(groups)

    def chosen(self) -> dict[str, int | None]:
        """Return which combination of its grid each method uses, by its finished runs; None if none is."""
        return {
            entry.method.name: best_of(entry.points(self.tune_seeds)) if entry.method.axes else 0
            for entry in self.entries
        }

    def cells(self, chosen: Mapping[str, int | None]) -> list[Cell]:
        """Return the cells of all seeds, of the combinations that were chosen."""
        groups = [
            entry.cells(self.seeds)[number]
            for entry in self.entries
            if (number := chosen[entry.method.name]) is not None
        ]
        return _seed_by_seed(groups)

    def comparison(self, chosen: Mapping[str, int | None]) -> Comparison:
        """Return the results of the runs that are finished."""
        contenders, missing = [], []
        for entry in self.entries:
            number, method = chosen[entry.method.name], entry.method
            found = None if number is None else entry.points(self.seeds)[number]
            if number is None or found is None or not found.runs:
                missing.append(method.name)
                continue
            tried = tuple(entry.points(self.tune_seeds)) if method.axes else ()
            contenders.append(Contender(method.name, found, method.paper, tried, number))
        if not contenders:
            rule, remedy = "needs a finished run of at least one method", "see why the runs failed"
            raise InputError([Fault("METHODS", rule, missing, remedy)], "the runs")
        return Comparison(self.name, tuple(contenders), self.targets, tuple(missing))


def _seed_by_seed(groups: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Return cells so that an interrupted comparison has results of every method."""
    return [group[place] for place in range(max(map(len, groups), default=0)) for group in groups]


def load_plan(
    sources: Sequence[str],
    out: Path,
    *,
    base: str = "quickstart",
    seeds: str = "",
    tune_seeds: str = "",
    overrides: Sequence[str] = (),
    tune: Sequence[str] = (),
    tuned: bool = True,
    targets: Sequence[float] = TARGETS,
) -> Plan:
    """Return what a comparison runs.

    Args:
        sources: Methods, by the names of those that ship, or TOML files.
        out: The folder of the runs.
        base: The spec whose data, model, costs, budgets and iterations all methods share.
        seeds: As people write them: "1-5"; by default the seed of the base.
        tune_seeds: Seeds of every combination of a grid; by default the first of `seeds`.
        overrides: Settings of the base, each "section.key=value".
        tune: Grids (`methods.with_tuning`).
        tuned: Whether grids are used at all; without, methods run with the settings that they have.
        targets: Test accuracies to reach.

    Raises:
        InputError: Lists what is wrong with the command, the base or the methods, before any work starts.
    """
    faults = target_faults(targets)
    numbers: dict[str, tuple[int, ...]] = {}
    for option, text in (("--seeds", seeds), ("--tune-seeds", tune_seeds)):
        try:
            numbers[option] = seeds_of(text, option)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults, "the command")
    given = apply_overrides(load_given(base), overrides)
    terms = parse(given, where=base)
    loaded = [load_method(source) for source in dict.fromkeys(sources)]
    folders = Counter(folder_name(method.name) for method in loaded)
    twice = [method.name for method in loaded if folders[folder_name(method.name)] > 1]
    faults = [
        Fault("METHODS", "must have different names", name, "rename one of the files") for name in twice
    ]
    faults += [fault for method in loaded for fault in check_overrides(method, overrides)]
    if faults:
        raise InputError(faults, "the command")
    found = with_tuning(loaded, tune)
    if not tuned:
        found = [Method(method.name, method.given, (), method.paper) for method in found]
    if faults := [fault for method in found for fault in check_equal_terms(method, given, terms)]:
        raise InputError(faults, "the methods")
    chosen = numbers["--seeds"] or (terms.train.seed,)
    first = numbers["--tune-seeds"] or chosen[:1]
    entries = tuple(Entry(method, given, out) for method in found)
    return Plan(Path(base).stem, entries, chosen, first, tuple(dict.fromkeys(targets)))
