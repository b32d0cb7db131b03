"""Which runs belong together, and what to call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flexfl.results import Run

SEED, POLICY = "train.seed", "control.policy"

_LONGEST_LIST = 4

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs whose specs differ in nothing but the seed.

    label     what sets this group apart from the others in the report
    settings  the spec with dotted names, without the seed
    """

    label: str
    runs: tuple[Run, ...]
    settings: Settings

    @property
    def started(self) -> tuple[Run, ...]:
        """The runs that have recorded something."""
        return tuple(run for run in self.runs if len(run.iterations["iteration"]))

    @property
    def iterations(self) -> int:
        """How many iterations all started runs have in common."""
        return min((len(run.iterations["iteration"]) for run in self.started), default=0)

    @property
    def origin(self) -> str:
        """Where its runs lie, in words."""
        first = self.runs[0].directory
        if len(self.runs) == 1:
            return str(first)
        folders = {run.directory.parent for run in self.runs}
        return f"{len(self.runs)} runs" + (f" in {first.parent}" if len(folders) == 1 else "")

    def budget(self, knob: str) -> float | None:
        return self.runs[0].budget(knob)


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Groups in the order of their first run, their runs in the order of seeds."""
    members: dict[tuple[str, str | None], list[Run]] = {}
    settings: dict[tuple[str, str | None], Settings] = {}
    for run in runs:
        setting = flatten(run.spec)
        del setting[SEED]
        identity = repr(sorted(setting.items())), run.model
        members.setdefault(identity, []).append(run)
        settings[identity] = setting
    alike = Counter(spec for spec, _ in members)
    for spec, model in members:
        if alike[spec] > 1:  # networks handed over in Python: one name, other shapes
            settings[spec, model] = {**settings[spec, model], "model.fingerprint": str(model)[:8]}
    told = _named_alike(list(settings.values()))
    return tuple(
        Group(label, tuple(sorted(members[identity], key=lambda run: run.seed)), each)
        for label, each, identity in zip(_labels(told), told, members, strict=True)
    )


def group_of(label: str, runs: Sequence[Run]) -> Group:
    """Runs that are known to belong together, under a name of their own."""
    settings = {name: value for name, value in flatten(runs[0].spec).items() if name != SEED}
    return Group(label, tuple(sorted(runs, key=lambda run: run.seed)), settings)


def _named_alike(settings: Sequence[Settings]) -> list[Settings]:
    """What is a plain name in one spec and a table with a kind in another goes by `kind` in both."""
    tables = {name.removesuffix(".kind") for each in settings for name in each if name.endswith(".kind")}
    return [
        {f"{name}.kind" if name in tables else name: value for name, value in each.items()}
        for each in settings
    ]


def flatten(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train": {"seed": 1}} as {"train.seed": 1}."""
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def differing(settings: Sequence[Settings]) -> list[str]:
    """The names whose values are not the same in all, the policy first."""
    names = dict.fromkeys(name for each in settings for name in each)
    found = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    return sorted(found, key=lambda name: not name.startswith(POLICY))


def shown(value: Any) -> str:
    """A setting as text; long lists are summed up."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and len(value) > _LONGEST_LIST:
        if all(isinstance(item, int | float) for item in value):
            return f"{min(value):g}…{max(value):g} ({len(value)} values)"
        return f"({len(value)} entries)"
    if isinstance(value, list):
        return f"[{', '.join(shown(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _labels(settings: Sequence[Settings]) -> list[str]:
    if len(settings) == 1:
        rules = {name: shown(value) for name, value in settings[0].items() if name.startswith(POLICY)}
        # One policy for all three knobs, or a table with a rule for each.
        return [rules.get(POLICY) or ", ".join(f"{name[len(POLICY) + 1 :]}={rules[name]}" for name in rules)]
    names = differing(settings)
    # What only one policy knows (its send_ratio, say) tells nothing beyond the policy, unless
    # two groups that have it disagree on it.
    telling = [name for name in names if len({repr(each[name]) for each in settings if name in each}) > 1]
    labels = [", ".join(_told(each, [name for name in telling if name in each])) for each in settings]
    alike = Counter(labels)
    labels = [
        label if label and alike[label] == 1 else ", ".join(_told(each, names))
        for label, each in zip(labels, settings, strict=True)
    ]
    # Two long lists may still read alike.
    alike, seen = Counter(labels), Counter[str]()
    for index, label in enumerate(labels):
        seen[label] += 1
        if alike[label] > 1:
            labels[index] = f"{label} #{seen[label]}"
    return labels


def _told(settings: Settings, names: Sequence[str]) -> list[str]:
    return [f"{name}={shown(settings[name])}" if name in settings else f"no {name}" for name in names]
