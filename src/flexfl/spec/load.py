"""Specs from files, shipped names and overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from flexfl.errors import Fault, InputError
from flexfl.spec.names import nearest
from flexfl.spec.schema import Spec, parse


def shipped() -> dict[str, str]:
    """The specs that come with the package: name → TOML text."""
    folder = resources.files("flexfl.spec") / "shipped"
    return {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def load_spec(source: str, overrides: Sequence[str] = ()) -> Spec:
    """The spec named `source`, shipped or a TOML file, with `key=value` overrides applied."""
    return parse(apply_overrides(load_given(source), overrides), where=_where(source))


def load_given(source: str, *, beside: Path = Path()) -> dict[str, Any]:
    """What the spec named `source` says, before it is checked; a file is looked for in `beside`."""
    text, where = _read(source, beside)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError([Fault(source, "must be TOML", str(error), "correct that line")], where) from error


def merged(given: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the settings of `change`; a table that names its kind replaces, others add."""
    out = _copy(given)
    for key, value in change.items():
        below = out.get(key)
        if isinstance(value, Mapping):
            out[key] = merged(below if isinstance(below, Mapping) and "kind" not in value else {}, value)
        else:
            out[key] = value
    return out


def _where(source: str) -> str:
    return f"the spec {source}" if source in shipped() else str(Path(source))


def _read(source: str, beside: Path) -> tuple[str, str]:
    known = shipped()
    if source in known:
        return known[source], _where(source)
    path = beside / source
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = f"{nearest(source, known)} ({getattr(error, 'strerror', None) or error})"
        fault = Fault("SPEC", "must be a spec that ships or a TOML file", source, reason)
        raise InputError([fault], "the command") from error


def apply_overrides(given: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`given` with each `section.key=value` set; the value is TOML, or else plain text."""
    spec = _copy(given)
    faults = []
    for override in overrides:
        path, equals, text = override.partition("=")
        parts = [part.strip() for part in path.split(".")]
        if not equals or len(parts) < 2 or not all(parts):
            example = "for example --set train.iterations=500"
            faults.append(Fault("--set", "must read section.key=value", override, example))
            continue
        table = spec
        for part in parts[:-1]:
            below = table.get(part)
            # A table replaces a plain value: --set budget.uplink.others=1 over budget.uplink = 0.01.
            table[part] = below if isinstance(below, dict) else {}
            table = table[part]
        table[parts[-1]] = _value(text.strip())
    if faults:
        raise InputError(faults, "the command")
    return spec


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def to_toml(spec: Spec) -> str:
    """The resolved spec, to be stored with its results and run again."""
    return tomli_w.dumps(spec.plain())
