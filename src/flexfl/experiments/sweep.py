"""Sweeps: a grid of overrides × seeds in a TOML file; each cell becomes a run directory.

base = "fashion"                # a bundled spec, or a TOML file beside this one
seeds = "1-5"                   # or a list
set.train.iterations = 2000     # for all cells

[grid]                          # every combination of these
control.tradeoff = [0.002, 0.02, 0.2]
control.initial_queue = [0.1, 1.0]

[[variant]]                     # and of these; a variant can change several settings
name = "top-k"
set.control = { policy = "top-k", send_ratio = 0.01 }
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexfl.errors import Fault, InputError, nearest
from flexfl.experiments.cell import Cell
from flexfl.spec.load import load_given, merged, seeds_of, toml_fault, with_paths
from flexfl.spec.schema import Spec, parse

_KEYS = ("base", "seeds", "set", "grid", "variant")


@dataclass(frozen=True)
class Axis:
    """One setting of the grid and its values."""

    path: tuple[str, ...]
    values: list[Any]

    @property
    def key(self) -> str:
        """The setting's dotted name."""
        return ".".join(self.path)

    def change(self, value: Any) -> dict[str, Any]:
        """Return the nested override that sets `value`.

        >>> Axis(("control", "tradeoff"), [0.02]).change(0.02)
        {'control': {'tradeoff': 0.02}}
        """
        table: Any = value
        for part in reversed(self.path):
            table = {part: table}
        return dict(table)

    def labelled(self) -> list[tuple[str, Any]]:
        """Return the values with short labels, numbered where two would give the same folder name."""
        labels = [_value_label(value, number) for number, value in enumerate(self.values, start=1)]
        folders = [folder_name(label) for label in labels]
        return [
            (label if folders.count(folder_name(label)) == 1 else f"{label}-{number}", value)
            for number, (label, value) in enumerate(zip(labels, self.values, strict=True), start=1)
        ]


@dataclass(frozen=True)
class Sweep:
    """A parsed sweep file; `variants` maps names to overrides, paths in them are relative to `folder`."""

    base: Mapping[str, Any]
    name: str
    seeds: tuple[int, ...]
    axes: tuple[Axis, ...]
    variants: Mapping[str, Mapping[str, Any]]
    folder: Path = Path()

    def cells(self, out: Path) -> list[Cell]:
        """Return all cells, seed by seed, so that an interrupted sweep has results of every combination.

        Args:
            out: The folder of the runs.

        Raises:
            InputError: Lists the faults of every cell, before any work starts.
        """
        combinations = list(self._combinations())
        cells, faults = [], _shared_folders([label for label, _ in combinations])
        for seed, (label, given) in itertools.product(self.seeds, combinations):
            seeded = with_paths(merged(given, {"train": {"seed": seed}}), self.folder)
            try:
                directory = out / folder_name(label) / f"seed-{seed}"
                cells.append(Cell(f"{label}, seed {seed}", parse(seeded), directory))
            except InputError as error:
                faults += [
                    Fault(f"{label}: {fault.field}", fault.rule, fault.value, fault.remedy)
                    for fault in error.faults
                ]
        if faults:  # without repeating them for every seed
            raise InputError(list({str(fault): fault for fault in faults}.values()), "the sweep")
        return cells

    def _combinations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        short = [axis.path[-1] for axis in self.axes]
        names = [
            axis.key if short.count(last) > 1 else last for axis, last in zip(self.axes, short, strict=True)
        ]
        for variant, change in self.variants.items():
            for values in itertools.product(*(axis.labelled() for axis in self.axes)):
                changes = [axis.change(value) for axis, (_, value) in zip(self.axes, values, strict=True)]
                labels = [f"{name}={label}" for name, (label, _) in zip(names, values, strict=True)]
                parts = [variant] * bool(variant) + labels
                yield ", ".join(parts) or self.name, merged(self.base, change, *changes)


def folder_name(label: str) -> str:
    """Return a label as a folder name.

    >>> folder_name("top-k, tradeoff=0.02")
    'top-k-tradeoff=0.02'
    """
    return re.sub(r"[^\w.=+-]+", "-", label).strip("-.") or "run"


def load_sweep(path: Path) -> Sweep:
    """Load a sweep from its TOML file.

    Raises:
        InputError: Lists every fault of the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([toml_fault(text, error)], str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fault = Fault("FILE", "must be a TOML file with a sweep", str(path), reason)
        raise InputError([fault], "the command") from error
    faults = [
        Fault(key, "is not a key of a sweep", value, _instead_of(key))
        for key, value in given.items()
        if key not in _KEYS
    ]
    faults += [
        Fault(key, "must be a table", given[key], f"write [{key}] and its settings below")
        for key in ("set", "grid")
        if not isinstance(given.get(key, {}), Mapping)
    ]
    faults += [
        Fault(
            f"set.{key}", "must be a section with settings", value, "for example set.train.iterations = 500"
        )
        for key, value in _table(given.get("set")).items()
        if not isinstance(value, Mapping)
    ]
    if faults:
        raise InputError(faults, str(path))
    base = given.get("base")
    if base is not None and not isinstance(base, str):
        faults.append(Fault("base", "must be the name of a spec", base, "for example fashion"))
    seeds = _seeds(given["seeds"], faults) if "seeds" in given else None
    axes = tuple(axes_of(given.get("grid", {}), faults))
    variants = _variants(given.get("variant", []), faults)
    changes = {"set": given.get("set", {})} | {f"variant {name}": change for name, change in variants.items()}
    faults += [
        Fault(f"{where}.train.seed", "is given by seeds", change["train"]["seed"], "write seeds = [1, 2]")
        for where, change in changes.items()
        if "seed" in change.get("train", {})
    ]
    faults += [
        Fault("grid.train.seed", "is given by seeds", axis.values, f"write seeds = {axis.values}")
        for axis in axes
        if axis.path == ("train", "seed")
    ]
    if faults:
        raise InputError(faults, str(path))
    start = {} if base is None else load_given(base, beside=path.parent)
    if seeds is None:
        seeds = (_table(start.get("train")).get("seed", 1),)
    return Sweep(merged(start, given.get("set", {})), path.stem, seeds, axes, variants, path.parent)


def _instead_of(key: str) -> str:
    """Return the remedy for a key that a sweep does not have."""
    if key in Spec.model_fields:
        return f"write set.{key} for all cells; or is it a spec, for flexfl run?"
    return nearest(key, _KEYS)


def _table(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _seeds(given: Any, faults: list[Fault]) -> tuple[int, ...]:
    try:
        seeds = seeds_of(given, "seeds")
    except InputError as error:
        faults += error.faults
        return ()
    if not seeds:
        faults.append(Fault("seeds", "must be at least one", given, 'for example "1-5"'))
    return seeds


def axes_of(
    table: Mapping[str, Any], faults: list[Fault], path: tuple[str, ...] = (), *, section: str = "grid"
) -> Iterator[Axis]:
    """Yield the settings of a grid with their values; what is wrong with it is added to `faults`.

    Args:
        table: The grid: a list of values for each setting.
        faults: What is wrong with it.
        path: The place of the table in the spec.
        section: What the grid is called, for messages.
    """
    for key, value in table.items():
        key_path = (*path, key)
        if isinstance(value, Mapping):
            yield from axes_of(value, faults, key_path, section=section)
        elif isinstance(value, list) and value and len(key_path) > 1:
            yield Axis(key_path, value)
        else:
            example = "for example control.tradeoff = [0.002, 0.02]"
            faults.append(
                Fault(f"{section}.{'.'.join(key_path)}", "must list the values of a setting", value, example)
            )


def _variants(given: Any, faults: list[Fault]) -> dict[str, Mapping[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(entry, Mapping) for entry in given):
        faults.append(Fault("variant", "must be tables", given, "write [[variant]] before each"))
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for number, entry in enumerate(given):
        name, change = entry.get("name"), entry.get("set", {})
        where = f"variant[{number}]"
        if not isinstance(name, str) or not name.strip():
            faults.append(
                Fault(f"{where}.name", "must be a text", name, "name the variant; it names its folder")
            )
        elif folder_name(name) in map(folder_name, found):
            faults.append(Fault(f"{where}.name", "must be unique", name, "choose another"))
        elif not isinstance(change, Mapping) or not all(
            isinstance(table, Mapping) for table in change.values()
        ):
            example = "for example set.control.tradeoff = 0.2"
            faults.append(Fault(f"{where}.set", "must be a table of sections", change, example))
        else:
            found[name] = change
        faults += [
            Fault(f"{where}.{key}", "is not a key of a variant", entry[key], nearest(key, ("name", "set")))
            for key in entry
            if key not in ("name", "set")
        ]
    return found or {"": {}}


def _value_label(value: Any, number: int) -> str:
    """Return a short label for a value; its number for a list or a table."""
    if isinstance(value, Mapping) and "kind" in value:
        return "-".join(str(part) for part in value.values() if not isinstance(part, list | Mapping))
    if isinstance(value, list | Mapping):
        return f"#{number}"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _shared_folders(labels: list[str]) -> list[Fault]:
    """List cells that would write into the folder of another cell."""
    first: dict[str, str] = {}
    faults = []
    for label in labels:
        if (found := first.get(folder_name(label))) is not None:
            remedy = "rename a variant or value"
            faults.append(Fault("the sweep", f"uses the folder of {found} twice", label, remedy))
        first.setdefault(folder_name(label), label)
    return faults
