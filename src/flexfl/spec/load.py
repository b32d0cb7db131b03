"""Specs from files, shipped names and overrides; seeds as people write them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import tomli_w

from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import as_number
from flexfl.spec.schema import Spec, parse, place_of
from flexfl.spec.sections import FAMILIES


def shipped() -> dict[str, str]:
    """Return the specs that come with the package: name → TOML text."""
    return _texts(resources.files("flexfl.spec") / "shipped")


def methods() -> dict[str, str]:
    """Return the methods to compare with that come with the package: name → TOML text."""
    return _texts(resources.files("flexfl.spec") / "shipped" / "methods")


def _texts(folder: Traversable) -> dict[str, str]:
    return {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def load_spec(source: str, overrides: Sequence[str] = ()) -> Spec:
    """Return a spec by its name or file.

    Args:
        source: the name of one that ships, or a TOML file.
        overrides: settings to change, each "section.key=value".

    Raises:
        InputError: lists every fault.
    """
    where = f"the spec {source}" if source in shipped() else source
    return parse(apply_overrides(load_given(source), overrides), where=where)


def load_given(source: str, *, beside: Path = Path()) -> dict[str, Any]:
    """Return what the spec named `source` says, before it is checked; a file is looked for in `beside`."""
    text = _read(source, beside)
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([toml_fault(text, error)], str(beside / source)) from error
    return given if source in shipped() else with_paths(given, (beside / source).parent)


def with_paths(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return sections whose relative paths are taken from the folder of their file.

    These are data.path, and of costs, also those of joint budgets, every `path`, and a `trace` that is just
    a path.

    >>> with_paths({"data": {"path": "mine.npz"}, "costs": {"uplink": {"trace": "3g/*"}}}, Path("/specs"))
    {'data': {'path': '/specs/mine.npz'}, 'costs': {'uplink': {'trace': '/specs/3g/*'}}}
    """
    out = dict(given)
    if isinstance(data := given.get("data"), Mapping) and isinstance(path := data.get("path"), str):
        out["data"] = {**data, "path": _beside(path, folder)}
    for section in ("costs", "budget"):
        if section in given:
            out[section] = _with_paths(given[section], folder)
    return out


def _with_paths(table: Any, folder: Path) -> Any:
    if not isinstance(table, Mapping):
        return table
    return {
        key: _beside(value, folder)
        if key in ("path", "trace") and isinstance(value, str)
        else _with_paths(value, folder)
        for key, value in table.items()
    }


def _beside(path: str, folder: Path) -> str:
    return str(folder.absolute() / Path(path).expanduser())


def toml_fault(text: str, error: tomllib.TOMLDecodeError) -> Fault:
    """Return where a text is not TOML, with the line that is there."""
    reason, found = str(error), re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
    if found is None:
        last = text.rstrip().splitlines()[-1:] or [""]
        return Fault("the end", f"must be TOML ({reason})", last[0], "complete that line")
    line = text.splitlines()[int(found[1]) - 1].strip() if int(found[1]) <= len(text.splitlines()) else ""
    field = f"line {found[1]}, column {found[2]}"
    return Fault(field, f"must be TOML ({reason[: found.start()]})", line, _correction(line))


def _correction(line: str) -> str:
    """Return what may be meant by a line that is not TOML."""
    key, equals, value = (part.strip() for part in line.partition("="))
    if equals and (better := as_number(value)):
        return better
    if value in ("True", "False"):
        return f"write {key} = {value.lower()}"
    if value in ("None", "null"):
        return f"leave {key} out"
    if equals and re.fullmatch(r"[A-Za-z][\w./:-]*", value):
        return f'write text in quotes: {key} = "{value}"'
    return "correct that line"


def merged(given: Mapping[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` with the settings of all changes, table by table; the last one wins.

    Where a change names another member of a family (a policy, a kind of cost), the old one's parameters
    are dropped, but not what another change says of the new one:

    >>> given = {"control": {"policy": "online", "tradeoff": 0.02}}
    >>> merged(given, {"control": {"policy": "top-k", "send_ratio": 0.01}})
    {'control': {'policy': 'top-k', 'send_ratio': 0.01}}
    """
    change: dict[str, Any] = {}
    for one in changes:
        change = _merged(change, one, dropping=False)
    return _merged(given, change, dropping=True)


def _merged(
    given: Mapping[str, Any], change: Mapping[str, Any], place: str = "", *, dropping: bool
) -> dict[str, Any]:
    out = _copy(_without_old_member(given, change, place) if dropping else given)
    for key, value in change.items():
        here = f"{place}.{key}".strip(".")
        if isinstance(value, Mapping):
            out[key] = _merged(_as_table(out.get(key), here), value, here, dropping=dropping)
        else:
            out[key] = value
    return out


def _without_old_member(given: Mapping[str, Any], change: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return a table without the parameters of its member, if the change names another one."""
    key, default = _key_of(place)
    if key is None or key not in change or change[key] == given.get(key, default):
        return given
    return {name: table for name, table in given.items() if f"{place}.{name}" in FAMILIES}


def _key_of(place: str) -> tuple[str | None, Any]:
    """Return the key of the table at that place that names a member, and the member by default."""
    if place in FAMILIES:
        family, default = FAMILIES[place]
        return family.key, default.get(family.key)
    if place == "model":
        return "name", Spec.model_fields["model"].default.name
    return "kind" if re.fullmatch(r"track\.[^.]+", place) else None, None


def _as_table(value: Any, place: str) -> dict[str, Any]:
    """Return a table to add to: that table, a member given by its name alone, or an empty one."""
    key, _ = _key_of(place)
    if isinstance(value, str) and key is not None:
        return {key: value}
    return value if isinstance(value, dict) else {}


def _read(source: str, beside: Path) -> str:
    known = shipped()
    if source in known:
        return known[source]
    try:
        return (beside / source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"{nearest(source, known)} ({getattr(error, 'strerror', None) or error})"
        fault = Fault("SPEC", "must be a spec that ships or a TOML file", source, reason)
        raise InputError([fault]) from error


def apply_overrides(given: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return `given` with each "section.key=value" set; the value is TOML, or else plain text."""
    changes: list[dict[str, Any]] = []
    faults = []
    for override in overrides:
        path, equals, text = override.partition("=")
        parts = [part.strip() for part in path.split(".")]
        if not equals or len(parts) < 2 or not all(parts):
            place = place_of(path.strip()) if equals else None
            example = f"write --set {place}={text}" if place else "for example --set train.iterations=500"
            faults.append(Fault("--set", "must read section.key=value", override, example))
            continue
        change = _value(text.strip())
        for part in reversed(parts):
            change = {part: change}
        changes.append(change)
    if faults:
        raise InputError(faults, "the command")
    return merged(given, *changes)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def to_toml(spec: Spec) -> str:
    """Return the resolved spec as TOML, to be stored with its results and run again."""
    return tomli_w.dumps(spec.plain())


_MOST = 10_000


def seeds_of(given: Any, field: str) -> tuple[int, ...]:
    """Return the seeds in "1-5" or "1,2,7", or in a list, each once and in order; none from an empty text."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    numbers: list[int] = []
    for part in parts:
        text = part.strip() if isinstance(part, str) else str(part) if type(part) is int else "?"
        if not text:
            continue
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first or last - first >= _MOST:
            rule = f"must list whole numbers or ranges of them, up to {_MOST}"
            raise InputError([Fault(field, rule, part, "for example 1-5 or 1,2,7")], "the command")
        numbers += range(first, last + 1)
    return tuple(dict.fromkeys(numbers))
