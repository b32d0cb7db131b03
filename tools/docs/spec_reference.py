"""The page on the spec, made from the code: its sections, and the members of every family."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticUndefined

from flexfl.compress import COMPRESSORS
from flexfl.control import POLICIES
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.costs.devices import DEVICES
from flexfl.costs.traces import TRACES
from flexfl.costs.transfer import LINK_TIMES
from flexfl.data.partition import PARTITIONS
from flexfl.deploy.settings import SITE_FILE, SiteSettings
from flexfl.learning_rate import SCHEDULES
from flexfl.local import LOCAL_WORK
from flexfl.models.build import MODELS
from flexfl.parameters import Measure, Rule, Whole
from flexfl.registry import Family
from flexfl.results.trackers import TRACKERS
from flexfl.signatures import Parameter
from flexfl.spec.schema import Spec
from flexfl.spec.sections import FAMILIES

FAMILY_PAGES: dict[str, tuple[Family, str, str]] = {
    "Networks": (MODELS, "model.name", "Options are set in `[model.options]`."),
    "Partitions": (PARTITIONS, "data.partition.kind", "A name alone will do where no option is needed."),
    "Schedules": (
        SCHEDULES,
        "train.schedule.kind",
        "A name alone will do where no option is needed. p is the share of the run that is over.",
    ),
    "Local work": (LOCAL_WORK, "train.local.kind", "A name alone will do where no parameter is needed."),
    "Policies": (POLICIES, "control.policy", "Parameters stand beside `policy` in `[control]`."),
    "Costs of computing": (COMPUTE_COSTS, "costs.compute.kind", ""),
    "Costs of sending": (MESSAGE_COSTS, "costs.uplink.kind, costs.downlink.kind", ""),
    "Traces": (
        TRACES,
        "trace",
        "A path or a list of values alone will do, too. It is read when a run begins.",
    ),
    "Device classes": (DEVICES, "classes.NAME", "NAME is of your choice."),
    "Times on a link": (
        LINK_TIMES,
        "clock.uplink.kind, clock.downlink.kind",
        "Besides the [costs](#costs-of-sending) that are in seconds.",
    ),
    "Compressors": (COMPRESSORS, "compress.uplink.kind, compress.downlink.kind", ""),
    "Trackers": (TRACKERS, "track.NAME.kind", "NAME is of your choice; a run may have several."),
}
"""Title → the family, where a spec names it, and a remark."""

_INTRODUCTION = """# Spec

A run is described by a TOML file, or by the same tables in Python: `flexfl.simulate(train={"seed": 7})`.
This page is made from the code when the site is built. What is left out has the default; unknown keys are
refused; one error lists every fault, before any work starts. The resolved spec is stored with the run.

Wherever a member of a family is named, `"module:Class"` names one of your own ([how](../howto/index.md)).
*By client* means: one number for all, or a list with one for each client. *By knob* means: also a table by
`compute`, `uplink` and `downlink`.
"""
_TYPES = {str: "text", bool: "`true` or `false`", int: "a whole number", float: "a number", NoneType: ""}
_NAME = "a name, or a table with a `{}`: "
_ENTRY = re.compile(r"^\s*(\w+): ", re.MULTILINE)
_KNOBS = {
    "policy": "for all three knobs",
    "compute": "for who computes",
    "uplink": "for what clients send",
    "downlink": "for what the server sends",
}
"""What a field of these names is about, where the docstring of a section does not say."""


def spec_reference() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION]
    for name, field in Spec.model_fields.items():
        parts.append(_section(f"[{name}]", field.annotation, f"{name}."))
    for title, (family, field, remark) in FAMILY_PAGES.items():
        parts.append(_family(title, family, field, remark))
    site = _section(f"{SITE_FILE}", SiteSettings, "")
    parts.append(site + "\nThis file lies in a client's kit and is its owner's: no run can change it.\n")
    return "\n".join(parts)


def _section(title: str, section: Any, prefix: str) -> str:
    """Return a section: what it is, and a row for each setting."""
    text, described = described_fields(section)
    lines = [f"## `{title}`", "", text, ""]
    if section.model_fields.keys() - {"root"}:
        lines += ["| setting | takes | default | |", "|---|---|---|---|"]
    for name, field in section.model_fields.items():
        if name == "root":  # tables by a name of the person's choice
            continue
        takes = _member_link(prefix, name) or _takes(field.annotation, field.metadata)
        default = _default(_default_of(prefix + name, field))
        lines.append(_row(f"`{name}`", takes, default, described.get(name, "")))
    return "\n".join([*lines, ""])


def _member_link(prefix: str, name: str) -> str:
    """Return where the members are that a setting may name; nothing for other settings."""
    if prefix + name in FAMILIES:
        family, ways = FAMILIES[prefix + name][0], "a table with a `{}`: " if prefix == "control." else _NAME
    elif prefix.rstrip(".") in FAMILIES and name == FAMILIES[prefix.rstrip(".")][0].key:
        family, ways = FAMILIES[prefix.rstrip(".")][0], "one of the "
    else:
        return ""
    title = next(title for title, (known, *_) in FAMILY_PAGES.items() if known is family)
    return f"{ways.format(family.key)}[{title.lower()}](#{_anchor(title)})"


def _default_of(field: str, info: Any) -> Any:
    if field in FAMILIES and (chosen := FAMILIES[field][1]):
        return chosen
    return info.default_factory() if info.default_factory is not None else info.default


def described_fields(section: type[BaseModel]) -> tuple[str, dict[str, str]]:
    """Return what a section is, and what its docstring says of each field."""
    text, found = _described(inspect.cleandoc(section.__doc__ or ""), section.model_fields)
    by_knob = {name: _KNOBS[name] for name in section.model_fields if name in _KNOBS}
    return text, by_knob | found


def _described(doc: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return a docstring's text, and what it says of each name in a line `name: …`."""
    doc = re.split(r"\n(?:Raises|Returns):\n", doc)[0]
    entries = [entry for entry in _ENTRY.finditer(doc) if entry[1] in set(names)]
    if not entries:
        return _flat(doc), {}
    ends = [entry.start() for entry in entries[1:]] + [len(doc)]
    found = {entry[1]: _flat(doc[entry.end() : end]) for entry, end in zip(entries, ends, strict=True)}
    return _flat(doc[: entries[0].start()].replace("Attributes:", "")), found


def _family(title: str, family: Family, field: str, remark: str) -> str:
    lines = [f"## {title}", "", f"Named in `{field}`. {remark}".strip(), ""]
    for kind, member in family.members.items():
        lines += [f"### `{kind}` {{ #{_anchor(title)}-{kind} }}", "", _member_text(member), ""]
        parameters = family.parameters(kind)
        if parameters:
            _, described = _described(inspect.cleandoc(member.__doc__ or ""), parameters)
            lines += ["| parameter | takes | default | |", "|---|---|---|---|"]
            lines += [
                _row(f"`{name}`", *_parameter(entry), described.get(name, ""))
                for name, entry in parameters.items()
            ]
        else:
            lines += ["No parameters."]
        lines.append("")
    return "\n".join(lines)


def _member_text(member: Any) -> str:
    """Return what a member's docstring says before its lists of arguments, and its examples."""
    text = inspect.cleandoc(member.__doc__ or "")
    text = re.split(r"\n(?:Args|Attributes|Raises|Returns):\n|\n>>> ", text)[0]
    return "\n\n".join(_flat(part) for part in text.split("\n\n"))


def _parameter(entry: Parameter) -> tuple[str, str]:
    annotation, metadata = entry.annotation, ()
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
    return _takes(annotation, metadata), "needed" if entry.needed else _default(entry.default)


def _takes(annotation: Any, metadata: Iterable[Any]) -> str:
    """Return what a setting takes, in words, from its type and its rules."""
    for rule in metadata:
        if isinstance(rule, Whole):
            most = "" if rule.most >= 2**53 else f" and ≤ {rule.most}"
            return f"a whole number ≥ {rule.least}{most}"
        if isinstance(rule, Rule):
            kind = "a number " + rule.text.removeprefix("must be ")
            if isinstance(rule, Measure):
                kind += f" in {rule.unit}, or text with a unit"
            ways = ", by client" * rule.per_client + ", by knob" * rule.by_knob
            return kind + ways
        if isinstance(rule, BeforeValidator) and (names := _names(rule)):
            return names
    return _type(annotation)


def _names(rule: BeforeValidator) -> str:
    """Return the names that a validator knows."""
    inside = inspect.getclosurevars(rule.func).nonlocals
    known = ", ".join(f"`{name}`" for name in inside.get("known", ()))
    return known + (', `"module:function"`' if inside.get("importable") else "")


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(filter(None, map(_type, get_args(annotation))))
    if get_origin(annotation) is list:
        return "a list"
    if get_origin(annotation) is dict:
        return "a table"
    return _TYPES.get(annotation, "→")


def _default(value: Any) -> str:
    if value is None or value is PydanticUndefined or (isinstance(value, Mapping) and not value):
        return ""
    if isinstance(value, Enum):
        value = value.value
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(entry)}' for key, entry in value.items())} }}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
