"""Groups of runs that differ only in the seed, and their labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flexfl.results import Run
from flexfl.results.directory import MAY_CHANGE
from flexfl.results.run import flatten as flatten

SEED, POLICY = "train.seed", "control.policy"

_LONGEST_LIST = 4

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs whose specs differ only in the seed.

    Attributes:
        label: The settings in which this group differs from the others in the report.
        runs: The runs, in the order of seeds.
        settings: The spec with dotted names, without the seed.
    """

    label: str
    runs: tuple[Run, ...]
    settings: Settings

    @property
    def started(self) -> tuple[Run, ...]:
        """The runs that have recorded at least one iteration."""
        return tuple(run for run in self.runs if len(run.iterations["iteration"]))

    @property
    def iterations(self) -> int:
        """The number of iterations that all started runs have."""
        return min((len(run.iterations["iteration"]) for run in self.started), default=0)

    @property
    def origin(self) -> str:
        """Where its runs are stored, as text."""
        first = self.runs[0].directory
        if len(self.runs) == 1:
            return str(first)
        folders = {run.directory.parent for run in self.runs}
        return f"{len(self.runs)} runs" + (f" in {first.parent}" if len(folders) == 1 else "")

    def budget(self, knob: str) -> float | None:
        """Return the mean budget of `knob`; None if there is no limit."""
        return self.runs[0].budget(knob)


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Group runs that differ only in the seed, in the order of their first run."""
    members: dict[tuple[str, str | None], list[Run]] = {}
    settings: dict[tuple[str, str | None], Settings] = {}
    for run in runs:
        setting = flatten(run.spec) | run.objects
        setting = {name: value for name, value in setting.items() if not _changes_nothing(name)}
        del setting[SEED]
        identity = repr(sorted(setting.items())), run.model
        members.setdefault(identity, []).append(run)
        settings[identity] = setting
    for identity in [each for each, runs in members.items() if _other_starts(runs)]:
        common = settings.pop(identity)
        for run in members.pop(identity):
            apart = f"{identity[0]} {run.start}", run.model
            members.setdefault(apart, []).append(run)
            settings[apart] = {**common, "model.start": str(run.start)[:8]}
    alike = Counter(spec for spec, _ in members)
    for spec, model in members:
        if alike[spec] > 1:  # models passed as Python objects: same name, different shapes
            settings[spec, model] = {**settings[spec, model], "model.fingerprint": str(model)[:8]}
    listed = _unify_kinds(list(settings.values()))
    return tuple(
        Group(label, tuple(sorted(members[identity], key=lambda run: run.seed)), each)
        for label, each, identity in zip(_labels(listed), listed, members, strict=True)
    )


def _other_starts(runs: Sequence[Run]) -> bool:
    """Return whether runs of one seed began with other parameters: networks that were passed in."""
    starts: dict[int, set[str | None]] = {}
    for run in runs:
        starts.setdefault(run.seed, set()).add(run.start)
    return any(len(found) > 1 for found in starts.values())


def _changes_nothing(name: str) -> bool:
    """Return whether a setting changes no result beyond rounding, so that seeds may differ in it."""
    return name.startswith("track.") or (name in MAY_CHANGE and not name.startswith("train."))


def group_of(label: str, runs: Sequence[Run]) -> Group:
    """Return the group of runs that are known to differ only in the seed, with a given label."""
    settings = {name: value for name, value in flatten(runs[0].spec).items() if name != SEED}
    return Group(label, tuple(sorted(runs, key=lambda run: run.seed)), settings)


def _unify_kinds(settings: Sequence[Settings]) -> list[Settings]:
    """Rename a setting NAME to NAME.kind in all specs if it is a table with a kind in some."""
    tables = {name.removesuffix(".kind") for each in settings for name in each if name.endswith(".kind")}
    return [
        {f"{name}.kind" if name in tables else name: value for name, value in each.items()}
        for each in settings
    ]


def differing_settings(settings: Sequence[Settings]) -> list[str]:
    """Return the names of settings whose values differ, the policy first."""
    names = dict.fromkeys(name for each in settings for name in each)
    found = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    return sorted(found, key=lambda name: not name.startswith(POLICY))


def format_setting(value: Any) -> str:
    """Return a setting as text; long lists are summarised.

    >>> format_setting([1, 2, 3, 4, 5])
    '1…5 (5 values)'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and len(value) > _LONGEST_LIST:
        if all(isinstance(item, int | float) for item in value):
            return f"{min(value):g}…{max(value):g} ({len(value)} values)"
        return f"({len(value)} entries)"
    if isinstance(value, list):
        return f"[{', '.join(format_setting(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _labels(settings: Sequence[Settings]) -> list[str]:
    if len(settings) == 1:
        rules = {
            name: format_setting(value) for name, value in settings[0].items() if name.startswith(POLICY)
        }
        # One policy for all three knobs, or a table with a rule for each.
        return [rules.get(POLICY) or ", ".join(f"{name[len(POLICY) + 1 :]}={rules[name]}" for name in rules)]
    names = differing_settings(settings)
    # A setting of one policy only (its send_ratio, say) adds nothing to the policy's name, unless
    # two groups have different values.
    relevant = [name for name in names if len({repr(each[name]) for each in settings if name in each}) > 1]
    labels = [_label(each, [name for name in relevant if name in each]) for each in settings]
    alike = Counter(labels)
    labels = [
        label if label and alike[label] == 1 else _label(each, names)
        for label, each in zip(labels, settings, strict=True)
    ]
    # Two long lists may still have the same summary.
    alike, seen = Counter(labels), Counter[str]()
    for index, label in enumerate(labels):
        seen[label] += 1
        if alike[label] > 1:
            labels[index] = f"{label} #{seen[label]}"
    return labels


def _label(settings: Settings, names: Sequence[str]) -> str:
    return ", ".join(
        f"{name}={format_setting(settings[name])}" if name in settings else f"no {name}" for name in names
    )
