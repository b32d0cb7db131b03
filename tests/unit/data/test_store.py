"""Datasets on this machine: what is found there, and what is not taken for a dataset."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from flexfl.data import store
from flexfl.data.fetch import fetch
from flexfl.errors import FlexFLError
from loopback import Loopback
from tiny_data import CIFAR, cifar10, fashion, good, names


def test_a_manifest_tells_where_it_came_from(web: Loopback, folder: Path) -> None:
    fetch(fashion(good(web)))
    manifest = json.loads((folder / "fashion-mnist/manifest.json").read_text())
    assert set(manifest) == {"source", "fetched", "digests"}
    assert manifest["source"] == "official archive (good.tar.gz)"
    assert set(manifest["digests"]) == {"train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy"}


@pytest.mark.parametrize("file", ["train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy"])
def test_a_flipped_byte_is_noticed(web: Loopback, folder: Path, file: str) -> None:
    """Anywhere: `find` may take the file for whole or not, but nothing else happens, and `faults` tells."""
    entry = fashion(good(web))
    stored, path = fetch(entry), folder / "fashion-mnist" / file
    whole = path.read_bytes()
    places = [*range(0, 128, 3), len(whole) // 2, len(whole) - 1]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        assert stored.faults() == [f"{path} has changed since it was fetched"]
        found = store.find(entry)
        if found is not None:
            assert found.faults() == stored.faults()
    path.unlink()
    assert stored.faults() == [f"{path} cannot be read (No such file or directory)"]
    assert store.find(entry) is None


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "[]",
        "3",
        "{}",
        '{"source": 1}',
        '{"source": 1, "fetched": 2, "digests": 3}',
        "[" * 100_000,
    ],
)
def test_a_broken_manifest(web: Loopback, folder: Path, manifest: str) -> None:
    entry = fashion(good(web))
    stored = fetch(entry)
    (stored.folder / "manifest.json").write_text(manifest, encoding="utf-8")
    assert store.find(entry) is None
    assert store.faults(entry) == [f"{stored.folder}/manifest.json cannot be read"]
    assert fetch(entry) == stored
    assert store.faults(entry) == []


@pytest.mark.parametrize("other", [np.zeros((20, 28, 28)), np.zeros((19, 28, 28), np.float32)])
def test_arrays_of_another_kind_are_not_taken(web: Loopback, folder: Path, other: np.ndarray) -> None:
    entry = fashion(good(web))
    stored = fetch(entry)
    manifest = json.loads((stored.folder / "manifest.json").read_text())
    np.save(stored.folder / "train_x.npy", other)
    manifest["digests"]["train_x.npy"] = sha256((stored.folder / "train_x.npy").read_bytes()).hexdigest()
    (stored.folder / "manifest.json").write_text(json.dumps(manifest))
    assert store.find(entry) is None
    assert store.faults(entry) == [f"{stored.folder} holds something else"]


@pytest.mark.parametrize("name", list(CIFAR))
def test_nothing_is_placed_that_is_not_in_the_catalogue(folder: Path, name: str) -> None:
    folder.mkdir()
    for wrong in (CIFAR[name] + 1, CIFAR[name][1:], CIFAR[name].astype(np.int16)):
        with pytest.raises(FlexFLError, match=f"{name} must "):
            store.save(cifar10(), {**CIFAR, name: wrong}, "nowhere")
    assert names(folder) == []
