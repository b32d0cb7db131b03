"""Samples from torch datasets and loaders, HuggingFace datasets and columns; partitions by a column."""

from __future__ import annotations

import itertools
import logging

import datasets as hf
import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import flexfl
from flexfl import Federated
from flexfl.data.datasets import load_federated
from flexfl.spec import load_spec

RNG = np.random.default_rng(3)
X = torch.from_numpy(RNG.normal(size=(30, 4)))
Y = torch.from_numpy(RNG.integers(0, 3, 30))
IDS = torch.from_numpy(RNG.integers(0, 9, (30, 5)))
USERS = [f"user-{n % 4}" for n in range(30)]


class Made(Dataset):
    """Samples by a function of their number."""

    def __init__(self, make, length=30):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, n):
        return self.make(n)


class Endless(IterableDataset):
    def __iter__(self):
        return ((X[n % 30], Y[n % 30]) for n in itertools.count())


def refused(pattern, source, **more):
    with pytest.raises(flexfl.InputError, match=pattern):
        Federated.split(source, **({"clients": 3} | more))


def same(data, x=X, y=Y):
    assert torch.equal(data.train_x, x)
    assert torch.equal(data.train_y, y)
    return True


# Datasets of pairs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        TensorDataset(X, Y),
        Made(lambda n: (X[n], int(Y[n]))),
        Made(lambda n: (X[n].numpy(), np.int32(Y[n]))),
        Made(lambda n: (X[n].tolist(), Y[n])),
        ConcatDataset([Subset(TensorDataset(X, Y), range(11)), Subset(TensorDataset(X, Y), range(11, 30))]),
        DataLoader(TensorDataset(X, Y), batch_size=None),
        [(x, y) for x, y in zip(X, Y, strict=True)],
        [(x, y) for x, y in zip(X.numpy(), Y.tolist(), strict=True)],
    ],
    ids=["tensors", "numbers", "arrays", "lists", "concat", "loader", "list", "list-of-arrays"],
)
def test_a_dataset_of_pairs_is_what_its_tensors_are(source):
    data, plain = (Federated.split(s, (X, Y), clients=3, partition="one-class") for s in (source, (X, Y)))
    assert data.plain
    assert same(data, X.to(data.train_x.dtype))
    assert data.classes == 3
    if data.train_x.dtype == X.dtype:
        assert data.fingerprint() == plain.fingerprint()


def test_more_samples_than_a_block_and_several_inputs():
    made = Made(lambda n: (torch.tensor([float(n)]), {"next": n + 1}, n % 2), 2500)
    data = Federated.split(made, clients=2)
    first, second = data.train_x
    assert torch.equal(first[:, 0], torch.arange(2500.0))
    assert torch.equal(second["next"], torch.arange(2500) + 1)
    assert torch.equal(data.train_y, torch.arange(2500) % 2)
    assert not data.plain


def test_one_dataset_or_loader_for_each_client():
    parts = [slice(0, 8), slice(8, 30)]
    data = Federated.of_clients([TensorDataset(X[p], Y[p]) for p in parts], test=TensorDataset(X, Y))
    assert same(data)
    assert data.sizes.tolist() == [8, 22]
    assert torch.equal(data.test_x, X)
    dicts = [{"ids": IDS[p], "labels": Y[p]} for p in parts]
    whole = Federated.of_clients(dicts)
    assert whole.train_y is whole.train_x
    assert torch.equal(whole.train_x["ids"], IDS)
    with pytest.raises(
        flexfl.InputError, match=r"data of client 1 must have features of shape .*like client 0"
    ):
        Federated.of_clients([dicts[0], {"ids": IDS[:4, :2], "labels": Y[:4]}])
    with pytest.raises(
        flexfl.InputError, match=r"data of client 1 must have features of shape .*like client 0"
    ):
        Federated.of_clients([dicts[0], {"other": IDS[:4], "labels": Y[:4]}])


def test_what_cannot_be_read_is_refused_with_a_remedy():
    refused(r"must have a length.*islice", Endless())
    refused(r"must have a length.*islice", (pair for pair in zip(X, Y, strict=True)))
    refused(r"must have a length.*islice", DataLoader(Endless()))
    refused(r"data \(train\) must have samples with features and labels", Made(lambda n: X[n]))
    refused(r"must have samples with features and labels", TensorDataset(X))
    refused(
        r"data \(train\) must have samples of the same shape.*pad or crop", Made(lambda n: (X[n, : n % 4], 0))
    )
    refused(r"same shape.*collate_fn", Made(lambda n: ([1.0] * (1 + n % 2), 0)))
    refused(r"must give its sample 7 \(RuntimeError: gone\)", Made(broken_at_7))
    refused(r"must have at least one sample", Made(lambda n: (X[n], 0), 0))
    refused(r"data of client \d must be finite", Made(lambda n: (X[n] / 0 if n == 3 else X[n], 0)))
    refused(r"must have columns to choose from", TensorDataset(X, Y), features="x")
    refused(r"must be a pair of arrays.*torch Dataset", 7)
    refused(r"must be classes from 0 on, got -1", Made(lambda n: (X[n], -1)))
    late = Made(lambda n: (X[0] if n < 1500 else X[0, :3], 0), 2000)  # ragged between blocks
    refused(r"must have samples of the same shape", late)


def broken_at_7(n):
    if n == 7:
        raise RuntimeError("gone")
    return X[n], 0


def test_a_random_augmentation_is_drawn_once_and_said_so(caplog):
    noisy = Made(lambda n: (X[n] + torch.rand(4), Y[n]))
    with caplog.at_level(logging.WARNING, "flexfl"):
        Federated.split(TensorDataset(X, Y), clients=3)
        Federated.split(Made(lambda n: (X[n] * torch.nan, Y[n])), clients=3, content="known")
        assert not caplog.records
        data = Federated.split(noisy, clients=3)
    assert "another sample 0 each time" in caplog.text
    assert data.fingerprint() == data.fingerprint()


# Loaders ---------------------------------------------------------------------------------------------


def test_a_loader_gives_its_dataset_and_tells_whose_minibatches_are_used(caplog):
    with caplog.at_level(logging.WARNING, "flexfl"):
        for options in ({}, {"shuffle": True}, {"drop_last": True}):
            assert same(Federated.split(DataLoader(TensorDataset(X, Y), batch_size=7, **options), clients=3))
    assert "set train={'batch_size': 7}" in caplog.text


def test_what_a_loader_would_do_otherwise_is_refused():
    whole = TensorDataset(X, Y)
    weighted = WeightedRandomSampler(torch.ones(30), 30)
    refused(r"plain minibatches.*WeightedRandomSampler.*Subset", DataLoader(whole, sampler=weighted))
    batches = [[0, 1], [2, 3]]
    refused(r"plain minibatches.*got 'list'", DataLoader(whole, batch_sampler=batches))
    drawn = torch.utils.data.BatchSampler(weighted, 4, drop_last=False)
    refused(r"plain minibatches.*WeightedRandomSampler", DataLoader(whole, batch_sampler=drawn))
    twice = torch.utils.data.RandomSampler(whole, replacement=True)
    refused(r"plain minibatches.*RandomSampler", DataLoader(whole, sampler=twice))


def padded(samples):
    ids = [torch.tensor(ids) for ids, _ in samples]
    together = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-1)
    return {"ids": together, "labels": torch.tensor([label for _, label in samples])}


def test_a_collate_function_pads_all_samples_to_one_length():
    ragged = Made(lambda n: ([n] * (1 + n % 3), n % 2))
    data = Federated.split(DataLoader(ragged, batch_size=4, collate_fn=padded), clients=3)
    assert data.train_x["ids"].shape == (30, 3)
    assert data.train_x["ids"][3].tolist() == [3, -1, -1]
    plain = Federated.split(DataLoader(ragged, collate_fn=padded), clients=3, features="ids", label="labels")
    assert plain.plain
    assert plain.classes == 2
    refused(r"same shape and type", DataLoader(ragged, collate_fn=default_collate))
    short = DataLoader(ragged, collate_fn=lambda samples: {"a": torch.zeros(3), "b": torch.zeros(30)})
    refused(r"must have one row for each sample", short)


# Columns ---------------------------------------------------------------------------------------------

COLUMNS = {"ids": IDS, "mask": IDS > 2, "labels": Y, "user": USERS}


def dicts():
    return Made(lambda n: {"ids": IDS[n], "mask": IDS[n] > 2, "labels": Y[n], "user": USERS[n]})


@pytest.mark.parametrize(
    "source", [COLUMNS, dicts(), hf.Dataset.from_dict({k: list(v) for k, v in COLUMNS.items()})]
)
def test_columns_by_name(source):
    one = Federated.split(source, clients=3, features="ids", label="labels", partition="one-class")
    assert same(one, IDS)
    several = Federated.split(source, clients=3, features=["ids", "mask"], label="labels")
    assert several.train_x.keys() == {"ids", "mask"}
    assert several.train_x["mask"].dtype == torch.bool
    assert torch.equal(several.train_y, Y)
    assert several.classes == 3
    whole = Federated.split(source, source, clients=3, features=["ids", "labels"], partition="one-class")
    assert whole.train_y is whole.train_x
    assert whole.test_y is whole.test_x
    assert [set(Y[part].tolist()) for part in whole.parts] == [{0}, {1}, {2}]
    refused(r"must have the column 'idz'.*did you mean ids", source, features="idz")
    refused(r"column 'user'\) must hold numbers.*features=\[", source)


def test_a_huggingface_dataset_that_is_ragged_or_streamed():
    ragged = hf.Dataset.from_dict({"ids": [[1], [2, 3]], "y": [0, 1]})
    refused(r"one shape in column 'ids': sample 0 has \(1,\), got '\(2,\) at sample 1'", ragged, clients=2)
    refused(r"must have a length.*islice", ragged.to_iterable_dataset())
    both = hf.DatasetDict({"train": ragged})
    refused(r"must be one split of a dataset, got \['train'\]; choose one, .*dataset\['train'\]", both)


def test_partitions_that_need_classes_say_so_for_samples_without():
    refused(r"needs labels that are classes", {"ids": IDS}, partition="one-class")
    refused(r"needs labels that are classes", {"ids": IDS, "labels": IDS}, partition="shards")
    assert Federated.split({"ids": IDS}, clients=4).clients == 4


def test_test_data_must_have_the_structure_of_the_training_data():
    refused(r"data \(test\) must have features of shape", {"ids": IDS}, test={"ids": IDS[:, :2]})
    refused(r"data \(test\) must have features of shape", {"ids": IDS}, test={"ids": IDS, "more": IDS})
    refused(r"data \(test\) must be finite", {"x": X}, test={"x": X / 0})
    refused(r"data of client \d must be finite", ({"x": X}, {"a": Y, "b": X / 0}))


def test_the_fingerprint_sees_every_part():
    def of(**columns):
        return Federated.split(columns, clients=3).fingerprint()

    first = of(a=IDS, b=Y)
    assert of(a=IDS.clone(), b=Y.clone()) == first
    assert len({first, of(a=IDS, c=Y), of(a=IDS, b=Y + 1), of(b=Y, a=IDS + 1)}) == 4


# By a column -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [COLUMNS, dicts(), hf.Dataset.from_dict({k: list(v) for k, v in COLUMNS.items()})]
)
def test_each_value_of_a_column_is_a_client(source):
    by_user = {"kind": "by-column", "column": "user"}
    data = Federated.split(source, features="ids", label="labels", partition=by_user)
    assert data.clients == 4
    for n, part in enumerate(data.parts):
        assert [USERS[sample] for sample in part] == [f"user-{n}"] * len(part)
        assert (np.diff(part) > 0).all()
    assert sorted(np.concatenate(data.parts)) == list(range(30))


def test_columns_beside_the_data_and_what_is_wrong_with_them():
    by_user = {"kind": "by-column", "column": "user"}

    def split(values, **more):
        return Federated.split((X, Y), partition=by_user, columns={"user": values}, **more)

    assert split(torch.arange(30) % 7).clients == 7
    assert split(np.arange(30) // 10 - 5, clients=3).sizes.tolist() == [10, 10, 10]
    for values, more, pattern in [
        (USERS, {"clients": 5}, r"data.clients must be the number of distinct values of .*'user', 4, got 5"),
        (USERS[:29], {}, r"'user' must hold one value for each of the 30 samples"),
        ([None, *USERS[1:]], {}, r"'user' must hold numbers or text"),
        (np.where(np.arange(30) == 4, np.nan, 1.0), {}, r"'user' must hold a value .* sample 4"),
    ]:
        with pytest.raises(flexfl.InputError, match=pattern):
            split(values, **more)
    refused(r"column must name a column .* columns=\{'user'", (X, Y), partition=by_user)
    refused(r"data.clients is needed", (X, Y), clients=None)
    refused(r"data.partition.column is needed by by-column", (X, Y), partition="by-column")


def test_a_spec_splits_a_file_by_a_column(tmp_path):
    file = tmp_path / "sensors.npz"
    arrays = {"train_x": X.numpy(), "train_y": Y.numpy(), "test_x": X[:5].numpy(), "test_y": Y[:5].numpy()}
    np.savez(file, **arrays, user=np.array(USERS))
    settings = [
        "data.name=file",
        f"data.path={file}",
        "data.partition={kind = 'by-column', column = 'user'}",
        "data.clients=4",
        "model.options={inputs = 4, classes = 3}",
        "train.iterations=3",
    ]
    run = flexfl.simulate(load_spec("quickstart", settings)).run
    assert run.partition.sizes.tolist() == [8, 8, 7, 7]
    assert run.spec["data"]["partition"] == {"kind": "by-column", "column": "user"}
    with pytest.raises(flexfl.InputError, match=r"distinct values of the column 'user', 4, got 5"):
        flexfl.simulate(load_spec("quickstart", [*settings, "data.clients=5"]))
    for column, path, pattern in [
        ("other", file, r"must hold the arrays other"),
        ("user", None, r"must be an array of an .npz file"),
    ]:
        partition = {"kind": "by-column", "column": column}
        with pytest.raises(flexfl.InputError, match=pattern):
            load_federated("file" if path else "fashion-mini", path, clients=4, partition=partition)
