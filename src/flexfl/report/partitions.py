"""How the data lay at the clients: one map for each partition that the runs had.

The PNG figure and the page are drawn from this, so they can't tell different stories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.report.groups import Group, shown
from flexfl.results.partition import Partition

SECTION_TITLE = "Partition of the data"
SECTION_TEXT = (
    "How many training samples each client holds: of all classes together above, of each class below. "
    "Pale grey means none."
)

# As many columns and rows as a figure has room for; more are drawn together.
MOST_COLUMNS, MOST_ROWS = 1000, 100


@dataclass(frozen=True)
class Map:
    """One partition, ready to be drawn.

    notes    what a reader must know about it, and whose it is
    columns  the first client of each column and, at the end, the number of clients, (P + 1,)
    sizes    samples of a client, the mean over each column, (P,)
    rows     as columns, for classes, (R + 1,); None for labels that are no classes
    counts   samples of a client, by class, (R, P); None likewise
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
        """What colours and bars count."""
        return "samples" if len(self.columns) > self.columns[-1] else "samples per client"


def maps_of(groups: Sequence[Group]) -> tuple[Map, ...]:
    """Each partition once, in the order of the groups; none at all if no run kept its partition."""
    members: dict[str, list[tuple[Group, str]]] = {}
    first: dict[str, tuple[Partition, Group]] = {}
    missing = []
    for group in groups:
        kept = [(run.seed, run.partition) for run in group.runs if run.partition is not None]
        if not kept:
            missing.append(group.label)
            continue
        identities = [partition.to_json() for _, partition in kept]
        seed, partition = kept[0]
        varies = len(set(identities)) > 1
        note = f"drawn anew for each seed: that of seed {seed} is shown" if varies else ""
        members.setdefault(identities[0], []).append((group, note))
        first.setdefault(identities[0], (partition, group))
    maps = []
    for index, (identity, (partition, group)) in enumerate(first.items()):
        whose = [member.label for member, _ in members[identity]]
        notes = dict.fromkeys(note for _, note in members[identity] if note)
        if len(groups) > 1:
            alike = "the same in all groups" if len(whose) == len(groups) else f"of {'; '.join(whose)}"
            notes = {alike: None} | notes
        if missing and index == len(first) - 1:
            notes[f"not recorded for {'; '.join(missing)}: run by an earlier version"] = None
        maps.append(map_of(partition, f"partition-{index}", _name(group.settings), tuple(notes)))
    return tuple(maps)


def map_of(partition: Partition, key: str, name: str, notes: tuple[str, ...] = ()) -> Map:
    """Clients and classes that have no room of their own are drawn together."""
    clients, samples = len(partition.sizes), int(partition.sizes.sum())
    wide, columns = _edges(clients, MOST_COLUMNS)
    width = np.diff(columns)
    sizes = np.add.reduceat(partition.sizes, columns[:-1]) / width
    title = f"{name}: {samples:,} samples at {clients:,} client{'' if clients == 1 else 's'}"
    if wide > 1:
        notes += (f"each column is the mean of {wide} clients",)
    if partition.classes is None:
        return Map(key, title, notes, columns, sizes, None, None)
    tall, rows = _edges(partition.classes, MOST_ROWS)
    if tall > 1:
        notes += (f"each row is the sum of {tall} classes",)
    counts = np.zeros((len(rows) - 1, len(width)))
    client, label, held = partition.held.T
    np.add.at(counts, (label // tall, client // wide), held)
    return Map(key, title, notes, columns, sizes, rows, counts / width)


def _edges(length: int, most: int) -> tuple[int, IntArray]:
    """How many go together, and where each lot begins; the last may be smaller."""
    step = -(-length // most)
    return step, np.append(np.arange(0, length, step), length)


def _name(settings: Mapping[str, object]) -> str:
    """The partitioner and its options, as the spec has them, but for what is switched off."""
    name = settings.get("data.partition", settings.get("data.partition.kind", "partition"))
    prefix = "data.partition."
    options = [
        f"{key.removeprefix(prefix)}={shown(value)}"
        for key, value in settings.items()
        if key.startswith(prefix) and key != f"{prefix}kind" and value is not False
    ]
    told = "given as Python data" if str(name).startswith("given:") else str(name)
    return f"{told} ({', '.join(options)})" if options else told
