"""A person's own labels for the groups of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flexfl.errors import Fault, InputError
from flexfl.report.groups import Group


def relabel(groups: Sequence[Group], labels: Sequence[str] | None) -> tuple[Group, ...]:
    """Return groups with these labels, one for each in order; unchanged if there are none.

    Raises:
        InputError: There are more or fewer labels than groups, or two are the same; lists the groups.
    """
    if not labels:
        return tuple(groups)
    faults = []
    if len(labels) != len(groups):
        listed = "; ".join(
            f"{number}. {group.label} ({group.origin})" for number, group in enumerate(groups, start=1)
        )
        remedy = f"the groups are, in this order: {listed}"
        rule = f"must be given {len(groups)} times, once for each group of runs that differ only in the seed"
        faults.append(Fault("label", rule, list(labels), remedy))
    if len(set(labels)) < len(labels) or not all(label.strip() for label in labels):
        faults.append(Fault("label", "must differ between groups", list(labels), "give each its own name"))
    if faults:
        raise InputError(faults, "the report")
    return tuple(replace(group, label=label) for group, label in zip(groups, labels, strict=True))
