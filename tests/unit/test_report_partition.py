"""The map of a partition: its counts, how neighbours are combined, and which groups it belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from flexfl.report import write_report
from flexfl.report.groups import Group, group_runs
from flexfl.report.partition_chart import partition_chart
from flexfl.report.partition_figure import write_partitions
from flexfl.report.partitions import MOST_COLUMNS, MOST_ROWS, PartitionMap, partition_map, partition_maps
from flexfl.report.style import MAP_COLOURS, NO_SAMPLES
from flexfl.results import Run
from flexfl.results.partition import Partition
from flexfl.results.store import MetricStore


def partition_of(counts: Sequence[Sequence[int]]) -> Partition:
    """From samples by client and class, (N, C)."""
    table = np.array(counts)
    client, label = np.nonzero(table)
    held = np.stack([client, label, table[client, label]], axis=1)
    return Partition(table.sum(axis=1), table.shape[1], held)


SORTED = partition_of([[5, 0], [5, 0], [0, 4]])
MIXED = partition_of([[2, 1], [3, 2], [0, 6]])
OTHER = partition_of([[1, 1], [4, 2], [0, 6]])
NUMBERS = Partition(np.array([3, 1, 2]), None, np.empty((0, 3), dtype=np.int64))


def write_run(
    directory: Path, partition: Partition | None, *, seed: int = 1, kind: Any = "iid", policy: str = "online"
) -> Path:
    directory.mkdir(parents=True)
    spec = {
        "data": {"clients": 3, "partition": kind},
        "train": {"iterations": 20, "seed": seed},
        "control": {"policy": policy},
    }
    (directory / "spec.toml").write_text(tomli_w.dumps(spec), encoding="utf-8")
    MetricStore(directory / "metrics.sqlite", create=True).close()
    if partition is not None:
        (directory / "partition.json").write_text(partition.to_json(), encoding="utf-8")
    return directory


def groups_of(*directories: Path) -> tuple[Group, ...]:
    return group_runs(Run(directory) for directory in directories)


def large(clients: int, classes: int) -> Partition:
    """Client n has n % 7 + 1 samples of class n % C."""
    n = np.arange(clients)
    return Partition(n % 7 + 1, classes, np.stack([n, n % classes, n % 7 + 1], axis=1))


# Content ------------------------------------------------------------------------------------


def test_counts_by_class_and_client() -> None:
    map_ = partition_map(MIXED, "partition-0", "iid")
    assert map_.title == "iid: 14 samples at 3 clients"
    assert map_.counts is not None
    assert_array_equal(map_.counts, [[2, 3, 0], [1, 2, 6]])
    assert_array_equal(map_.sizes, [3, 5, 6])
    assert_array_equal(map_.columns, [0, 1, 2, 3])
    assert (map_.unit, map_.notes) == ("samples", ())


def test_labels_that_are_no_classes_have_sizes_only() -> None:
    map_ = partition_map(NUMBERS, "partition-0", "iid")
    assert map_.counts is map_.rows is None
    assert_array_equal(map_.sizes, [3, 1, 2])


@given(st.integers(1, 4000), st.integers(1, 300))
def test_many_clients_and_classes_are_drawn_together(clients: int, classes: int) -> None:
    partition = large(clients, classes)
    map_ = partition_map(partition, "partition-0", "iid")
    assert map_.counts is not None
    assert map_.rows is not None
    rows, columns = map_.counts.shape
    assert rows <= MOST_ROWS
    assert columns <= MOST_COLUMNS
    assert (map_.columns[0], map_.columns[-1]) == (0, clients)
    assert (map_.rows[0], map_.rows[-1]) == (0, classes)
    # Nothing is lost: means over a column's clients, times their number, are its samples.
    width = np.diff(map_.columns)
    assert_allclose(
        map_.sizes * width, [part.sum() for part in np.split(partition.sizes, map_.columns[1:-1])]
    )
    assert_allclose(map_.counts.sum(axis=0), map_.sizes)
    assert (columns < clients) == any("mean of" in note for note in map_.notes)
    assert (rows < classes) == any("sum of" in note for note in map_.notes)
    assert map_.unit == ("samples" if columns == clients else "samples per client")


# Whose it is -------------------------------------------------------------------------------


def test_a_single_run(tmp_path: Path) -> None:
    table = {"kind": "dirichlet", "alpha": 0.3, "self_balancing": False}
    (map_,) = partition_maps(groups_of(write_run(tmp_path / "a", MIXED, kind=table)))
    assert map_.title == "dirichlet (alpha=0.3): 14 samples at 3 clients"
    assert map_.notes == ()


def test_data_given_in_python(tmp_path: Path) -> None:
    (map_,) = partition_maps(groups_of(write_run(tmp_path / "a", MIXED, kind="given:parts")))
    assert map_.title.startswith("given as Python data: ")


def test_a_partition_that_differs_by_seed_is_said_to(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "b", OTHER, seed=2), write_run(tmp_path / "a", MIXED, seed=1)]
    (map_,) = partition_maps(groups_of(*runs))
    assert_array_equal(map_.sizes, MIXED.sizes)
    assert map_.notes == ("different for each seed: that of seed 1 is shown",)
    same = [write_run(tmp_path / f"c{seed}", SORTED, seed=seed, kind="one-class") for seed in (1, 2)]
    (map_,) = partition_maps(groups_of(*same))
    assert map_.notes == ()


def test_what_groups_share_is_drawn_once(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / policy, MIXED, policy=policy) for policy in ("online", "full")]
    (map_,) = partition_maps(groups_of(*runs))
    assert map_.notes == ("the same in all groups",)
    runs.append(write_run(tmp_path / "c", SORTED, kind="one-class"))
    first, second = partition_maps(groups_of(*runs))
    assert [first.key, second.key] == ["partition-0", "partition-1"]
    assert first.notes == (f"of {'; '.join(group.label for group in groups_of(*runs)[:2])}",)
    assert second.notes[0].startswith("of ")
    assert "one-class" in second.notes[0]


def test_runs_of_an_earlier_version(tmp_path: Path) -> None:
    old = write_run(tmp_path / "old", None, policy="full")
    assert partition_maps(groups_of(old)) == ()
    (map_,) = partition_maps(groups_of(write_run(tmp_path / "new", MIXED), old))
    assert map_.notes == (
        "of control.policy=online",
        "not recorded for control.policy=full: run by an earlier version",
    )
    # Some seeds of a group are enough.
    (map_,) = partition_maps(groups_of(tmp_path / "new", write_run(tmp_path / "old2", None, seed=0)))
    assert map_.notes == ()


def test_a_name_beside_a_table_is_its_kind(tmp_path: Path) -> None:
    table = {"kind": "dirichlet", "alpha": 0.3}
    groups = groups_of(write_run(tmp_path / "a", MIXED), write_run(tmp_path / "b", MIXED, kind=table))
    assert [group.label for group in groups] == [
        "data.partition.kind=iid",
        "data.partition.kind=dirichlet",
    ]
    (alone,) = groups_of(tmp_path / "a")
    assert alone.settings["data.partition"] == "iid"


# Files -------------------------------------------------------------------------------------

MAPS = [
    partition_map(SORTED, "partition-0", "one-class"),
    partition_map(MIXED, "partition-1", "iid", ("of $\\frac$ all groups",)),
    partition_map(NUMBERS, "partition-2", "quantity"),
    partition_map(large(2500, 250), "partition-3", "shards"),
    partition_map(partition_of([[4]]), "partition-4", "iid"),
]


@pytest.mark.parametrize("map_", MAPS, ids=lambda map_: map_.key)
def test_charts_are_valid_plotly_and_name_their_axes(map_: PartitionMap) -> None:
    found = json.loads(json.dumps(partition_chart(map_), allow_nan=False))
    figure = Figure(found)  # raises on what plotly does not know
    assert figure.layout.xaxis.title.text == "client"
    bars = figure.data[0]
    assert len(bars.x) == len(bars.y) == len(map_.sizes)
    if map_.counts is None:
        assert len(figure.data) == 1
        assert figure.layout.yaxis.title.text == "samples"
        return
    heat = figure.data[1]
    assert figure.layout.yaxis.title.text == "class"
    assert heat.colorbar.title.text == map_.unit
    assert_allclose(heat.z, map_.counts, rtol=1e-3)
    assert len(heat.x) == map_.counts.shape[1] + 1  # edges
    assert len(heat.y) == map_.counts.shape[0] + 1
    # Nothing is grey, and nothing else is.
    (_, grey), (none, still_grey), (first, colour), *_, (last, darkest) = heat.colorscale
    assert grey == still_grey == NO_SAMPLES
    assert (colour, darkest) == (MAP_COLOURS[0], MAP_COLOURS[-1])
    assert none == first < map_.counts[map_.counts > 0].min() / heat.zmax
    assert last == 1


def test_the_colours_get_darker_step_by_step() -> None:
    """Read without seeing colours: luminance falls, and nothing is lighter than all."""

    def luminance(colour: str) -> float:
        red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    found = [luminance(colour) for colour in (NO_SAMPLES, *MAP_COLOURS)]
    assert np.all(np.diff(found) < -0.1)


def test_the_figure(tmp_path: Path) -> None:
    assert write_partitions([], tmp_path) == ()
    assert list(tmp_path.iterdir()) == []
    assert write_partitions(MAPS, tmp_path) == ("partition.png",)
    picture = imread(tmp_path / "partition.png")
    height, width = picture.shape[:2]
    assert 1200 <= width <= 1600
    assert height > len(MAPS) * 300
    write_partitions(MAPS[:1], tmp_path)
    alone = imread(tmp_path / "partition.png")
    assert 400 <= alone.shape[0] <= 700
    blue = alone[..., 2] - alone[..., 0] > 0.2
    assert blue.mean() > 0.1  # samples are drawn


def test_the_page_has_a_section_of_its_own(tmp_path: Path) -> None:
    attack = "</script><script>alert(1)</script>"
    runs = [write_run(tmp_path / "a", MIXED), write_run(tmp_path / "b", SORTED, policy=attack)]
    page = write_report(runs, tmp_path / "out")
    markup = page.read_text(encoding="utf-8").replace(get_plotlyjs(), "")
    assert '<section id="partition">' in markup
    assert '<a href="partition.png">' in markup
    for key in ("partition-0", "partition-1"):
        assert f'id="chart-{key}"' in markup
        assert f'"{key}":' in markup
    assert "iid: 14 samples at 3 clients" in markup
    assert "<script>alert" not in markup
    assert (tmp_path / "out" / "partition.png").is_file()


def test_a_report_without_partitions_has_no_such_section(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path / "a", None)], tmp_path / "out")
    assert 'id="partition"' not in page.read_text(encoding="utf-8")
    assert not (tmp_path / "out" / "partition.png").exists()
