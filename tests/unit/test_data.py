"""Data of a federation: partitions, minibatches, loaders and what they refuse."""

from __future__ import annotations

import gzip
import re
import struct
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from flexfl.data.augment import crop_flip
from flexfl.data.catalogue import CATALOGUE, DATASETS
from flexfl.data.datasets import load_federated, load_pairs
from flexfl.data.federated import Federated
from flexfl.data.idx import read_idx
from flexfl.data.minibatches import Minibatches
from flexfl.errors import FlexFLError, InputError
from flexfl.spec import parse
from flexfl.streams import Streams


def fault_of(error: pytest.ExceptionInfo[InputError]) -> Any:
    assert len(error.value.faults) == 1
    return error.value.faults[0]


# Minibatches -------------------------------------------------------------------------------


def parts_of(sizes: list[int]) -> list[np.ndarray]:
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def draw(batches: Minibatches, clients: list[int]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for group, samples in batches.draw(np.array(clients, dtype=int)):
        assert samples.ndim == 2
        assert len(group) == len(samples)
        found |= {int(n): tuple(row.tolist()) for n, row in zip(group, samples, strict=True)}
    return found


sizes_of_clients = st.lists(st.integers(1, 25), min_size=1, max_size=6)


@given(sizes_of_clients, st.integers(1, 10))
def test_an_epoch_takes_each_sample_at_most_once(sizes: list[int], batch_size: int) -> None:
    parts = parts_of(sizes)
    batches = Minibatches(parts, batch_size, Streams(1))
    clients = list(range(len(sizes)))
    history: list[list[tuple[int, ...]]] = [[] for _ in clients]
    for _ in range(30):
        for client, samples in draw(batches, clients).items():
            history[client].append(samples)
    for client, part in enumerate(parts):
        size = min(batch_size, len(part))
        per_epoch = len(part) // size
        for begin in range(0, 30 - per_epoch + 1, per_epoch):
            epoch = [sample for batch in history[client][begin : begin + per_epoch] for sample in batch]
            assert len(epoch) == per_epoch * size  # an incomplete batch is dropped
            assert len(set(epoch)) == len(epoch)
            assert set(epoch) <= set(part.tolist())


def test_epochs_differ_and_reach_every_sample_in_time() -> None:
    parts = parts_of([10, 10])
    batches = Minibatches(parts, 4, Streams(1))
    epochs = [draw(batches, [0, 1])[0] + draw(batches, [0, 1])[0] for _ in range(40)]
    assert len(set(epochs)) == 40
    assert {sample for epoch in epochs for sample in epoch} == set(range(10))


def test_clients_and_seeds_have_orders_of_their_own() -> None:
    parts = [np.arange(50), np.arange(50)]
    one, two = Minibatches(parts, 50, Streams(1)), Minibatches(parts, 50, Streams(2))
    assert len({one.peek(0, 0).tobytes(), one.peek(1, 0).tobytes(), two.peek(0, 0).tobytes()}) == 3


def test_a_small_client_uses_all_it_has_every_time() -> None:
    batches = Minibatches(parts_of([3, 20, 1]), 16, Streams(1))
    for _ in range(5):
        found = draw(batches, [0, 1, 2])
        assert {n: len(samples) for n, samples in found.items()} == {0: 3, 1: 16, 2: 1}
        assert set(found[0]) == {0, 1, 2}


@given(sizes_of_clients, st.integers(1, 8), st.data())
def test_batches_do_not_depend_on_who_else_draws(sizes: list[int], batch: int, data: st.DataObject) -> None:
    """Any subsets in any order: client n's batch number i is always the same, and `peek` tells it."""
    batches = Minibatches(parts_of(sizes), batch, Streams(4))
    oracle = Minibatches(parts_of(sizes), batch, Streams(4))
    subsets = st.lists(st.integers(0, len(sizes) - 1), unique=True, max_size=len(sizes))
    used = [0] * len(sizes)
    for chosen in data.draw(st.lists(subsets, max_size=12)):
        found = draw(batches, chosen)
        assert set(found) == set(chosen)
        for client, samples in found.items():
            assert samples == tuple(oracle.peek(client, used[client]).tolist())
            used[client] += 1
    assert_array_equal(batches.used, used)


@given(sizes_of_clients, st.integers(1, 8), st.integers(0, 20))
def test_used_is_all_the_state(sizes: list[int], batch: int, steps: int) -> None:
    clients = list(range(len(sizes)))
    batches = Minibatches(parts_of(sizes), batch, Streams(2))
    for step in range(steps):
        draw(batches, [n for n in clients if (n + step) % 2 == 0])
    resumed = Minibatches(parts_of(sizes), batch, Streams(2))
    draw(resumed, clients)  # whatever it did before
    resumed.used[:] = batches.used
    for _ in range(5):
        assert draw(resumed, clients) == draw(batches, clients)


# Federated ---------------------------------------------------------------------------------


def pair(samples: int, features: int = 3, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(samples)
    return rng.normal(size=(samples, features)), np.arange(samples) % classes


def test_split() -> None:
    x, y = pair(40, classes=4)
    data = Federated.split((x, y), pair(8, classes=4), clients=8, partition="one-class")
    assert data.clients == 8
    assert_array_equal(data.sizes, [5] * 8)
    assert data.classes == 4
    assert_array_equal(data.train_x, x)
    assert data.test_x is not None
    assert len(data.test_x) == 8
    assert_array_equal(data.train_y[data.parts[5]], [2] * 5)


def test_split_takes_tensors_lists_and_labels_that_are_vectors() -> None:
    data = Federated.split((torch.zeros(4, 2), [0, 1, 0, 1]), clients=2)
    assert data.test_x is None
    assert data.train_y.tolist() == [0, 1, 0, 1]
    assert Federated.split((torch.zeros(4, 2), torch.zeros(4, 3)), clients=2).classes is None
    assert Federated.split((torch.zeros(4, 2), torch.tensor([0.5, 1, 2, 3])), clients=2).classes is None


def test_of_clients_keeps_each_client_s_own_data() -> None:
    given_pairs = [pair(3), pair(5), pair(1)]
    data = Federated.of_clients(given_pairs, test=pair(2))
    assert_array_equal(data.sizes, [3, 5, 1])
    for part, (x, y) in zip(data.parts, given_pairs, strict=True):
        assert_array_equal(data.train_x[part], x)
        assert_array_equal(data.train_y[part], y)


def test_weights() -> None:
    data = Federated.of_clients([pair(3), pair(5), pair(2)])
    assert_allclose(data.weights("equal"), [1 / 3] * 3)
    assert_allclose(data.weights("samples"), [0.3, 0.5, 0.2])
    assert_allclose(data.weights([0.5, 0.25, 0.25]), [0.5, 0.25, 0.25])
    assert all(np.isclose(data.weights(kind).sum(), 1) for kind in ("equal", "samples", [0.2, 0.3, 0.5]))


def test_more_clients_than_samples() -> None:
    with pytest.raises(InputError) as caught:
        Federated.split(pair(5), clients=6)
    fault = fault_of(caught)
    assert (fault.field, fault.value) == ("data.clients", 6)
    assert "5" in fault.rule


@pytest.mark.parametrize("clients", [0, -1])
def test_no_clients(clients: int) -> None:
    with pytest.raises(InputError, match=r"data\.clients"):
        Federated.split(pair(5), clients=clients)
    with pytest.raises(InputError, match="at least one"):
        Federated.of_clients([])


def test_an_unknown_partition() -> None:
    with pytest.raises(InputError) as caught:
        Federated.split(pair(5), clients=2, partition="idd")
    assert fault_of(caught).remedy == "did you mean iid?"


@pytest.mark.parametrize(
    ("given_partition", "table"),
    [
        ("iid", {"kind": "iid"}),
        ("shards", {"kind": "shards", "num_classes_per_partition": 2}),
        ("quantity", {"kind": "quantity", "sizes": "linear"}),
    ],
)
def test_a_name_is_a_table_with_the_defaults(given_partition: str, table: dict[str, Any]) -> None:
    named = Federated.split(pair(60, classes=4), clients=6, partition=given_partition)
    given_as_table = Federated.split(pair(60, classes=4), clients=6, partition=table)
    assert named.fingerprint() == given_as_table.fingerprint()


def test_a_partition_with_options() -> None:
    sizes = np.array([1, 2, 3])  # as anything may come from NumPy
    data = Federated.split(pair(60), clients=3, partition={"kind": "quantity", "sizes": sizes})
    assert_array_equal(data.sizes, [10, 20, 30])
    spread = {"kind": "dirichlet", "alpha": np.float32(0.5), "min_partition_size": np.int64(1)}
    assert Federated.split(pair(60), clients=3, partition=spread).sizes.sum() == 60


@pytest.mark.parametrize(
    ("given_partition", "field"),
    [
        ("dirichlet", "data.partition.alpha"),
        ({"kind": "similarity"}, "data.partition.similarity"),
        ({"kind": "dirichlet", "alpha": -1}, "data.partition.alpha"),
        ({"kind": "idd"}, "data.partition.kind"),
        ({"alpha": 0.3}, "data.partition.kind"),
        (None, "data.partition"),
        ("given:parts", "data.partition"),
    ],
)
def test_a_partition_that_makes_no_sense(given_partition: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        Federated.split(pair(60), clients=3, partition=given_partition)
    assert fault_of(caught).field == field


def test_numbers_as_labels_take_partitions_without_classes() -> None:
    numbers = (np.zeros((20, 2)), np.linspace(0, 1, 20))
    for name in ("iid", "quantity"):
        assert Federated.split(numbers, clients=4, partition=name).clients == 4
    with pytest.raises(InputError, match=r"data\.partition needs labels that are classes.*use iid"):
        Federated.split(numbers, clients=4, partition="one-class")


def test_fewer_clients_than_classes() -> None:
    with pytest.raises(InputError, match="at least the number of classes, 4"):
        Federated.split(pair(20, classes=4), clients=3, partition="one-class")


def test_a_class_with_fewer_samples_than_clients_is_named() -> None:
    labels = np.array([0] * 9 + [1])
    with pytest.raises(InputError) as caught:
        Federated.split((np.zeros((10, 2)), labels), clients=4, partition="one-class")
    fault = fault_of(caught)
    assert fault.field == "data.clients"
    assert "class 1 has 1 for 2 clients" in fault.rule


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_feature_that_is_not_finite_names_client_and_sample(value: float) -> None:
    x, y = pair(12)
    x[7, 1] = x[11, 0] = value
    data = [(x[:6], y[:6]), (x[6:9], y[6:9]), (x[9:], y[9:])]
    with pytest.raises(InputError) as caught:
        Federated.of_clients(data)
    assert [fault.field for fault in caught.value.faults] == ["data of client 1", "data of client 2"]
    assert [fault.value for fault in caught.value.faults] == ["sample 7", "sample 11"]
    with pytest.raises(InputError, match="must be finite"):
        Federated.split((x, y), clients=3)


def test_an_empty_client_is_named() -> None:
    with pytest.raises(InputError, match="client 1"):
        Federated.of_clients([pair(3), (np.zeros((0, 3)), np.zeros(0, dtype=int)), pair(2)])


@pytest.mark.parametrize(
    ("train", "test", "named"),
    [
        ((np.zeros((5, 2)), np.zeros(4)), None, "train"),
        ((np.zeros((0, 2)), np.zeros(0)), None, "train"),
        (pair(5), (np.zeros((3, 3)), np.zeros(2)), "test"),
    ],
)
def test_as_many_labels_as_samples(train: Any, test: Any, named: str) -> None:
    with pytest.raises(InputError) as caught:
        Federated.split(train, test, clients=1)
    assert fault_of(caught).field == f"data ({named})"


def test_lengths_of_a_client_differ() -> None:
    with pytest.raises(InputError, match=r"client 1.*got \(3, 2\)"):
        Federated.of_clients([pair(3), (np.zeros((3, 3)), np.zeros(2, dtype=int))])


def test_clients_with_different_features_are_refused() -> None:
    with pytest.raises(InputError, match="client 1"):
        Federated.of_clients([pair(3, features=3), pair(3, features=4)])


def test_the_fingerprint_tells_data_apart() -> None:
    x, y = pair(12)

    def fingerprint(x: Any = x, y: Any = y, test: Any = None, **split: Any) -> str:
        return Federated.split((x, y), test, **{"clients": 3, **split}).fingerprint()

    changed = x.copy()
    changed[3, 1] += 1e-12
    prints = [
        fingerprint(),
        fingerprint(x=changed),
        fingerprint(x=x.astype(np.float32)),
        fingerprint(x=x.reshape(12, 3, 1)),
        fingerprint(y=1 - y),
        fingerprint(test=(x, y)),
        fingerprint(seed=2),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint() == fingerprint(x=torch.from_numpy(x.copy()))


def test_the_fingerprint_tells_who_holds_what() -> None:
    """The same samples in the same order, with other borders between the clients."""
    x, y = pair(12)
    three_nine = Federated.of_clients([(x[:3], y[:3]), (x[3:], y[3:])])
    five_seven = Federated.of_clients([(x[:5], y[:5]), (x[5:], y[5:])])
    assert three_nine.fingerprint() != five_seven.fingerprint()


# Loaders -----------------------------------------------------------------------------------


def test_fashion_mini() -> None:
    with resources.as_file(resources.files("flexfl.data") / "fashion_mini/fashion_mini.npz") as path:
        assert path.stat().st_size < 5_000_000
    (train_x, train_y), (test_x, test_y) = load_pairs("fashion-mini")
    assert tuple(train_x.shape) == (6000, 28, 28)
    assert tuple(test_x.shape) == (1000, 28, 28)
    assert_array_equal(np.bincount(train_y), [600] * 10)
    assert_array_equal(np.bincount(test_y), [100] * 10)
    assert (train_x.dtype, train_y.dtype) == (torch.float32, torch.int64)
    # Pixels 0 and 255 after (pixel/255 − 0.1307) / 0.3081.
    assert train_x.min().item() == pytest.approx(-0.1307 / 0.3081)
    assert train_x.max().item() == pytest.approx((1 - 0.1307) / 0.3081)
    assert len(torch.unique(train_x.reshape(6000, -1), dim=0)) > 5900

    data = load_federated("fashion-mini", clients=100, partition="one-class", seed=1)
    assert_array_equal(data.sizes, [60] * 100)
    assert_array_equal([int(data.train_y[part[0]]) for part in data.parts], np.arange(100) // 10)


def test_unknown_names_are_listed_together() -> None:
    with pytest.raises(InputError) as caught:
        parse({"data": {"name": "fashion-mnits", "partition": "one-clas"}, "model": {"name": "mpl"}})
    assert [(fault.field, fault.remedy) for fault in caught.value.faults] == [
        ("data.name", "did you mean fashion-mnist?"),
        ("data.partition", "did you mean one-class?"),
        ("model.name", "did you mean mlp?"),
    ]


def test_every_dataset_has_a_loader() -> None:
    """None falls through to another's error."""
    assert set(CATALOGUE) < set(DATASETS)
    for name in DATASETS:
        if name == "fashion-mini":
            load_pairs(name, "/nowhere/at/all")
        else:
            with pytest.raises(FlexFLError, match="nowhere"):
                load_pairs(name, "/nowhere/at/all")


def test_a_dataset_that_is_not_there() -> None:
    with pytest.raises(InputError, match="did you mean fashion-mini"):
        load_pairs("fashion-min")
    with pytest.raises(InputError, match=r"data\.name was a Python object"):
        load_federated("given:Federated", clients=3)


OWN_PARTITION = """
def by_turns(labels, clients, generator, shift=0, *, ends=()):
    order = list(range(shift, len(labels))) + list(ends)
    return [order[n::clients] for n in range(clients)]

def twice(labels, clients, generator): return [[0]] * (2 * clients)
def number(labels, clients, generator): return clients
def beyond(labels, clients, generator): return [[0], [len(labels)]]
def negative(labels, clients, generator): return [[0], [-1]]
def halves(labels, clients, generator): return [[0.5], [1]]
def table(labels, clients, generator): return [[[0]], [[1]]]
def empty(labels, clients, generator): return [[], [1]]
def broken(labels, clients, generator): return labels["x"]
"""


@pytest.fixture
def own_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_partition_of_this_test.py").write_text(OWN_PARTITION, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_partition_of_this_test"


def test_a_partition_of_ones_own(own_partition: str) -> None:
    data = Federated.split(pair(10), clients=3, partition=f"{own_partition}:by_turns")
    assert [list(part) for part in data.parts] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    table = {"kind": f"{own_partition}:by_turns", "shift": 4, "ends": [0, 1]}
    data = Federated.split(pair(10), clients=3, partition=table)
    assert [list(part) for part in data.parts] == [[4, 7, 0], [5, 8, 1], [6, 9]]


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("twice", {}, "data.partition OWN:twice must return a list of 2 arrays, one for each client, got 4"),
        ("number", {}, "data.partition OWN:number must return a list with the sample indices"),
        ("beyond", {}, "must return sample indices from 0 to 9, got '10 to 10 for client 1'"),
        ("negative", {}, "must return sample indices from 0 to 9, got '-1 to -1 for client 1'"),
        ("halves", {}, "must return arrays (S_n,) of whole numbers"),
        ("table", {}, "must return arrays (S_n,) of whole numbers"),
        ("empty", {}, "data of client 0 must have at least one sample"),
        ("broken", {}, "data.partition must have parameters that fit OWN:broken (IndexError"),
        ("absent", {}, "data.partition.kind must name something that can be imported"),
        ("by_turns", {"shfit": 1}, "data.partition.shfit is not a parameter of OWN:by_turns"),
    ],
)
def test_a_partition_of_ones_own_that_is_wrong(
    own_partition: str, name: str, options: dict[str, Any], told: str
) -> None:
    table = {"kind": f"{own_partition}:{name}", **options}
    with pytest.raises(InputError, match=re.escape(told.replace("OWN", own_partition))):
        Federated.split(pair(10), clients=2, partition=table)


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("name", ["array", "array.gz"])
def test_idx(name: str) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    raw = gzip.compress(idx(array)) if name.endswith("gz") else idx(array)
    assert_array_equal(read_idx(name, raw), array, strict=True)


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
CORRUPT_IDX = {
    "empty": b"",
    "short": b"\0\0",
    "another magic": b"\0\1" + idx(ARRAY)[2:],
    "another type": b"\0\0\x0d" + idx(ARRAY)[3:],
    "no shape": idx(ARRAY)[:4],
    "half a shape": idx(ARRAY)[:6],
    "half the axes": idx(ARRAY)[:12],
    "one byte short": idx(ARRAY)[:-1],
    "one byte long": idx(ARRAY) + b"\0",
    "huge": b"\0\0\x08\x03" + b"\xff" * 12 + bytes(24),
    "text": b"<html>not found</html>",
}


@pytest.mark.parametrize("kind", CORRUPT_IDX)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_corrupt_idx_file_is_refused(kind: str, suffix: str) -> None:
    raw = gzip.compress(CORRUPT_IDX[kind]) if suffix else CORRUPT_IDX[kind]
    with pytest.raises(FlexFLError, match="fetch the file again"):
        read_idx(f"images{suffix}", raw)


def test_a_corrupt_gzip_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)))
    for bad in (good[:-9], good[: len(good) // 2], good[:30] + b"\xff\x55" + good[32:]):
        with pytest.raises(FlexFLError, match="fetch the file again"):
            read_idx("images.gz", bad)
    monkeypatch.setattr("flexfl.data.idx._MOST_BYTES", 300)
    with pytest.raises(FlexFLError, match="larger than any such file"):
        read_idx("images.gz", good)


def test_fashion_mnist_from_a_folder(tmp_path: Path) -> None:
    images, labels = (
        np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28),
        np.array([3, 9], dtype=np.uint8),
    )
    for split in ("train", "t10k"):
        (tmp_path / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    (x, y), _ = load_pairs("fashion-mnist", str(tmp_path))
    assert y.tolist() == [3, 9]
    assert_allclose(x, (images / 255 - 0.1307) / 0.3081, rtol=1e-5, atol=1e-6)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FlexFLError, match=r"t10k-labels-idx1-ubyte\.gz missing"):
        load_pairs("fashion-mnist", str(tmp_path))


ARRAYS = {
    "train_x": np.random.default_rng(0).normal(size=(20, 3)),
    "train_y": np.arange(20, dtype=np.int32) % 2,
    "test_x": np.zeros((4, 3)),
    "test_y": np.zeros(4),
}


def load_file(path: Path) -> Any:
    return load_pairs("file", str(path))


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **ARRAYS)
    (train_x, train_y), (_, test_y) = load_file(path)
    assert train_x.dtype == torch.float32
    assert_array_equal(train_x, ARRAYS["train_x"].astype(np.float32))
    assert train_y.dtype == torch.int64
    assert test_y.is_floating_point()


def test_cifar10_from_npz(tmp_path: Path) -> None:
    path = tmp_path / "cifar.npz"
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    labels = np.array([1, 2], dtype=np.uint8)
    np.savez(path, train_x=pixels, train_y=labels, test_x=pixels, test_y=labels)
    (x, y), _ = load_pairs("cifar10", str(path))
    assert (tuple(x.shape), y.tolist()) == ((2, 3, 32, 32), [1, 2])
    for channel, (mean, deviation) in enumerate(((0.4914, 0.2023), (0.4822, 0.1994), (0.4465, 0.2010))):
        expected = (pixels[:, channel] / 255 - mean) / deviation
        assert_allclose(x[:, channel], expected, rtol=1e-5, atol=1e-6)


def test_a_dataset_that_needs_a_path() -> None:
    with pytest.raises(InputError) as caught:
        load_pairs("file")
    fault = fault_of(caught)
    assert fault.field == "data.path"
    assert "train_x" in fault.remedy


@pytest.mark.parametrize("absent", list(ARRAYS))
def test_npz_without_an_array(tmp_path: Path, absent: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **{name: array for name, array in ARRAYS.items() if name != absent})
    with pytest.raises(InputError) as caught:
        load_file(path)
    assert fault_of(caught).value.endswith(f"without {absent}")


class Trap:
    """Unpickling it would leave a trace."""

    sprung = False

    def __reduce__(self) -> Any:
        return spring, ()


def spring() -> None:
    Trap.sprung = True


def test_npz_with_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    np.savez(path, **{**ARRAYS, "train_y": trap})
    with pytest.raises(InputError) as caught:
        load_file(path)
    assert fault_of(caught).field == "data.path"
    assert not Trap.sprung


def damaged(tmp_path: Path, kind: str) -> bytes:
    path = tmp_path / "whole.npz"
    np.savez_compressed(path, **ARRAYS)
    good = path.read_bytes()
    if kind == "truncated":
        return good[: len(good) // 2]
    if kind == "damaged inside":
        with zipfile.ZipFile(path) as archive:
            start = archive.getinfo("train_x.npy").header_offset + 60
        return good[:start] + bytes(byte ^ 0x55 for byte in good[start : start + 40]) + good[start + 40 :]
    if kind == "an array alone":
        np.save(tmp_path / "array.npy", ARRAYS["train_x"])
        return (tmp_path / "array.npy").read_bytes()
    return {"empty": b"", "text": b"train_x,train_y\n", "pickle": b"\x80\x04N."}[kind]


@pytest.mark.parametrize("kind", ["truncated", "damaged inside", "an array alone", "empty", "text", "pickle"])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(damaged(tmp_path, kind))
    with pytest.raises(InputError) as caught:
        load_file(path)
    assert fault_of(caught).field == "data.path"


def test_an_npz_that_is_absent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must name a file that exists"):
        load_file(tmp_path / "absent.npz")


@pytest.mark.parametrize("name", ["train_x", "train_y"])
def test_arrays_of_text_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **{**ARRAYS, name: np.array(["a"] * 20)})
    with pytest.raises(InputError, match="data"):
        load_file(path)


# Augmentation ------------------------------------------------------------------------------


@given(
    total=st.integers(1, 6),
    batch=st.integers(1, 3),
    channels=st.integers(1, 3),
    side=st.integers(1, 9),
    iteration=st.integers(0, 1000),
    data=st.data(),
)
def test_crop_flip_against_a_plain_loop(
    total: int, batch: int, channels: int, side: int, iteration: int, data: st.DataObject
) -> None:
    clients = np.array(data.draw(st.lists(st.integers(0, total - 1), min_size=1, unique=True)))
    images = np.random.default_rng(iteration).normal(size=(len(clients), batch, channels, side, side + 1))
    found = crop_flip(torch.from_numpy(images), clients, total, Streams(3), iteration).numpy()

    drawn = Streams(3).generator("augment", iteration).random((3, total))
    for row, client in enumerate(clients):
        down, right = int(drawn[0, client] * 9) - 4, int(drawn[1, client] * 9) - 4
        for y in range(side):
            for x in range(side + 1):
                column = side - x if drawn[2, client] < 0.5 else x
                from_y, from_x = y + down, column + right
                inside = 0 <= from_y < side and 0 <= from_x < side + 1
                expected = images[row, :, :, from_y, from_x] if inside else np.zeros((batch, channels))
                assert_array_equal(found[row, :, :, y, x], expected)


def test_crop_flip_draws_every_shift_and_both_sides() -> None:
    """One bright pixel in the middle tells where the crop lay."""
    images = torch.zeros(400, 1, 1, 11, 12)
    images[..., 5, 5] = 1
    found = crop_flip(images, np.arange(400), 400, Streams(1), 0)
    places = {tuple(place) for place in torch.nonzero(found)[:, 3:].tolist()}
    assert {y for y, _ in places} == set(range(1, 10))
    assert {x for _, x in places} == set(range(1, 11))  # 5 ± 4, and its mirror image 6 ± 4


def test_a_client_s_augmentation_does_not_depend_on_who_else_computes() -> None:
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 2, 3, 8, 8)))
    together = crop_flip(images, np.arange(5), 5, Streams(1), 9)
    alone = crop_flip(images[3:4], np.array([3]), 5, Streams(1), 9)
    assert_array_equal(alone[0], together[3])
