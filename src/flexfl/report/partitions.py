"""How the data were partitioned over clients: one map for each partition of the runs.

The PNG figure and the page are drawn from it, so they show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.report.groups import Group, format_setting
from flexfl.results.partition import Partition

SECTION_TITLE = "Partition of the data"
SECTION_TEXT = (
    "Number of training samples of each client: of all classes above, of each class below. "
    "Pale grey means none."
)

# The most columns and rows that fit a figure; with more clients or classes, neighbours are combined.
MOST_COLUMNS, MOST_ROWS = 1000, 100


@dataclass(frozen=True)
class PartitionMap:
    """One partition, prepared for drawing.

    Attributes:
        key: Identifies the map.
        title: Title of the map.
        notes: Remarks for the caption, such as the groups it belongs to.
        columns: The first client of each column and, at the end, the number of clients, (P + 1,).
        sizes: Samples per client, averaged over each column, (P,).
        rows: Like `columns`, for classes, (R + 1,); None if labels are not classes.
        counts: Samples per client, by class, (R, P); None if labels are not classes.
    """

    key: str
    title: str
    notes: tuple[str, ...]
    columns: IntArray
    sizes: FloatArray
    rows: IntArray | None
    counts: FloatArray | None

    @property
    def unit(self) -> str:
        """The unit of colours and bars."""
        return "samples" if len(self.columns) > self.columns[-1] else "samples per client"


def partition_maps(groups: Sequence[Group]) -> tuple[PartitionMap, ...]:
    """Return each partition once, in the order of the groups; nothing if no run stored its partition."""
    members: dict[str, list[tuple[Group, str]]] = {}
    first: dict[str, tuple[Partition, Group]] = {}
    missing = []
    for group in groups:
        stored = [(run.seed, run.partition) for run in group.runs if run.partition is not None]
        if not stored:
            missing.append(group.label)
            continue
        identities = [partition.to_json() for _, partition in stored]
        seed, partition = stored[0]
        varies = len(set(identities)) > 1
        note = f"different for each seed: that of seed {seed} is shown" if varies else ""
        members.setdefault(identities[0], []).append((group, note))
        first.setdefault(identities[0], (partition, group))
    maps = []
    for index, (identity, (partition, group)) in enumerate(first.items()):
        labels = [member.label for member, _ in members[identity]]
        notes = dict.fromkeys(note for _, note in members[identity] if note)
        if len(groups) > 1:
            owners = "the same in all groups" if len(labels) == len(groups) else f"of {'; '.join(labels)}"
            notes = {owners: None} | notes
        if missing and index == len(first) - 1:
            notes[f"not recorded for {'; '.join(missing)}: run by an earlier version"] = None
        maps.append(partition_map(partition, f"partition-{index}", _name(group.settings), tuple(notes)))
    return tuple(maps)


def partition_map(partition: Partition, key: str, name: str, notes: tuple[str, ...] = ()) -> PartitionMap:
    """Return the map of a partition; if there are too many clients or classes, neighbours are combined.

    Args:
        partition: The partition.
        key: Identifies the map.
        name: Name of the partitioner, for the title.
        notes: Remarks for the caption.
    """
    clients, samples = len(partition.sizes), int(partition.sizes.sum())
    wide, columns = _edges(clients, MOST_COLUMNS)
    width = np.diff(columns)
    sizes = np.add.reduceat(partition.sizes, columns[:-1]) / width
    title = f"{name}: {samples:,} samples at {clients:,} client{'' if clients == 1 else 's'}"
    if wide > 1:
        notes += (f"each column is the mean of {wide} clients",)
    if partition.classes is None:
        return PartitionMap(key, title, notes, columns, sizes, None, None)
    tall, rows = _edges(partition.classes, MOST_ROWS)
    if tall > 1:
        notes += (f"each row is the sum of {tall} classes",)
    counts = np.zeros((len(rows) - 1, len(width)))
    client, label, held = partition.held.T
    np.add.at(counts, (label // tall, client // wide), held)
    return PartitionMap(key, title, notes, columns, sizes, rows, counts / width)


def _edges(length: int, most: int) -> tuple[int, IntArray]:
    """Return how many neighbours are combined, and where each block starts; the last may be smaller."""
    step = -(-length // most)
    return step, np.append(np.arange(0, length, step), length)


def _name(settings: Mapping[str, object]) -> str:
    """Return the partitioner and its options, without those that are switched off."""
    name = settings.get("data.partition", settings.get("data.partition.kind", "partition"))
    prefix = "data.partition."
    options = [
        f"{key.removeprefix(prefix)}={format_setting(value)}"
        for key, value in settings.items()
        if key.startswith(prefix) and key != f"{prefix}kind" and value is not False
    ]
    text = "given as Python data" if str(name).startswith("given:") else str(name)
    return f"{text} ({', '.join(options)})" if options else text
