"""Methods to compare: a spec that ships, a method that ships, or a TOML file with the settings of one.

paper = "Author et al., year"   # optional, shown in the table

[control]                       # with it, the file is a whole method: its policy and its compressors
policy = "paced"

[tune]                          # optional: values to choose from, every combination
train.learning_rate = [0.05, 0.1]

A file without [control] changes the method of the base. What is compared must be the same for all: data,
model, costs, budgets and iterations are those of the base, and a method that sets another is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from flexfl.errors import Fault, InputError, nearest
from flexfl.experiments.frontier import values_in
from flexfl.experiments.sweep import Axis, axes_of
from flexfl.results.run import flatten
from flexfl.spec.load import merged, methods, shipped, toml_fault, with_paths
from flexfl.spec.schema import Spec, parse

_OWN = ("control", "compress")
"""The sections that make a method."""
_SAME_TRAIN = ("iterations", "duration", "batch_size", "seed", "evaluate_every")
"""Settings of [train] that are the base's; the others, such as learning_rate, are a method's own."""
_EXAMPLE = (
    'for example --tune train.learning_rate=0.05,0.1, or --tune "fedavg:control.participation=0.02,0.1"'
)


@dataclass(frozen=True)
class Method:
    """A method to compare.

    Attributes:
        name: Its name, or that of its file.
        given: The sections that it sets.
        axes: The settings to tune, with their values.
        paper: Where it comes from; empty if the file does not say.
    """

    name: str
    given: Mapping[str, Any]
    axes: tuple[Axis, ...] = ()
    paper: str = ""

    def on(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a run of this method on a base."""
        if "control" in self.given:
            base = {name: section for name, section in base.items() if name not in _OWN}
        return merged(base, self.given)


def load_method(source: str) -> Method:
    """Return a method by its name or file.

    Of a spec that ships, only what makes a method is taken: [control], [compress], and those settings of
    [train] that are a method's own.

    Raises:
        InputError: Lists what is wrong with the file.
    """
    text, is_spec = _read(source)
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([toml_fault(text, error)], source) from error
    faults: list[Fault] = []
    paper, tune = given.pop("paper", ""), given.pop("tune", {})
    if not isinstance(paper, str):
        faults.append(Fault("paper", "must be text in quotes", paper, 'for example "McMahan et al., 2017"'))
    if not isinstance(tune, Mapping):
        faults.append(Fault("tune", "must be a table", tune, "write [tune] and its settings below"))
        tune = {}
    axes = tuple(axes_of(tune, faults, section="tune"))
    if faults:
        raise InputError(faults, source)
    if is_spec:
        given = {name: given[name] for name in (*_OWN, "train") if name in given}
        given["train"] = {k: v for k, v in given.get("train", {}).items() if k not in _SAME_TRAIN}
    elif source not in methods():
        given = with_paths(given, Path(source).parent)
    return Method(Path(source).stem, given, axes, paper)


def _read(source: str) -> tuple[str, bool]:
    """Return the text of a method, and whether it is a spec that ships."""
    if source in methods():
        return methods()[source], False
    if source in shipped():
        return shipped()[source], True
    try:
        return Path(source).read_text(encoding="utf-8"), False
    except (OSError, UnicodeDecodeError) as error:
        known = [*methods(), *shipped()]
        reason = f"{nearest(source, known)} ({getattr(error, 'strerror', None) or error})"
        fault = Fault("METHOD", "must be a method or spec that ships, or a TOML file", source, reason)
        raise InputError([fault], "the command") from error


def with_tuning(given: Sequence[Method], tune: Sequence[str]) -> list[Method]:
    """Return methods with the grids of `--tune`, each "key=value,value" or "method:key=value,value".

    A grid of the command takes the place of the file's grid of the same setting.

    Raises:
        InputError: Lists what is wrong with the options.
    """
    found, faults = {method.name: method for method in given}, list[Fault]()
    for text in tune:
        left, equals, listed = text.partition("=")
        who, colon, key = left.rpartition(":")
        path, values = tuple(part.strip() for part in key.split(".")), values_in(listed)
        if not equals or len(path) < 2 or not all(path) or not values:
            faults.append(Fault("--tune", "must read section.key=value,value", text, _EXAMPLE))
        elif colon and who.strip() not in found:
            remedy = nearest(who.strip(), found)
            faults.append(Fault("--tune", "must name a method that is compared", who, remedy))
        else:
            for name in [who.strip()] if colon else list(found):
                others = tuple(axis for axis in found[name].axes if axis.path != path)
                found[name] = replace(found[name], axes=(*others, Axis(path, values)))
    if faults:
        raise InputError(faults, "the command")
    return list(found.values())


def check_equal_terms(method: Method, base: Mapping[str, Any], terms: Spec) -> list[Fault]:
    """Return a fault for each setting of a method, or of its grid, that must be the base's and is another.

    Args:
        method: The method.
        base: The settings of the base.
        terms: The base as a spec.
    """
    same, faults = _same(terms), list[Fault]()
    for values in ((), *product(*([axis.change(value) for value in axis.values] for axis in method.axes))):
        try:
            found = _same(parse(reduce(merged, values, method.on(base))))
        except InputError as error:
            faults += error.faults
            continue
        faults += [
            Fault(
                key,
                f"must be the base's, {same.get(key, 'not set')}: methods are compared on equal terms",
                found.get(key, "not set"),
                "leave it out, or set it for all with --set",
            )
            for key in sorted(same.keys() | found.keys())
            if same.get(key) != found.get(key)
        ]
    named = [replace(fault, field=f"{method.name}: {fault.field}") for fault in faults]
    return list({str(fault): fault for fault in named}.values())


def check_overrides(method: Method, overrides: Sequence[str]) -> list[Fault]:
    """Return a fault for each setting for all methods that this one sets itself, and would not follow."""
    own, drops = flatten(method.given), "control" in method.given
    return [
        Fault(
            "--set",
            f"must not be of what {method.name} sets itself",
            text,
            f"leave it out, or write --tune {method.name}:{text}",
        )
        for text in overrides
        for key in [text.partition("=")[0].strip()]
        if any(f"{name}.".startswith(f"{key}.") or f"{key}.".startswith(f"{name}.") for name in own)
        or (drops and key.partition(".")[0] in _OWN)
    ]


def _same(spec: Spec) -> dict[str, Any]:
    """Return the settings that all methods must share, with dotted names."""
    return {
        key: value
        for key, value in flatten(spec.plain()).items()
        for section, _, name in [key.partition(".")]
        if section not in _OWN and (section != "train" or name in _SAME_TRAIN)
    }
