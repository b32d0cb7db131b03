"""From the store to a federation: mapped, not read; bit for bit what the formula says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flexfl.data import store
from flexfl.data.catalogue import CATALOGUE, FASHION_MNIST
from flexfl.data.datasets import load_federated
from flexfl.data.federated import Federated
from flexfl.data.fetch import fetch
from flexfl.data.images import CIFAR10, PixelScaling
from flexfl.data.sources.system import SystemPackage
from flexfl.errors import FlexFLError, InputError
from loopback import Loopback
from tiny_data import CIFAR, FASHION, cifar10, entry, fashion, good, idx_files, names, random_arrays


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Both small datasets are in the store."""
    for dataset, arrays in ((fashion(), FASHION), (cifar10(), CIFAR)):
        monkeypatch.setitem(CATALOGUE, dataset.name, dataset)
        with store.locked(dataset):
            store.save(dataset, arrays, "a test")


def load(name: str = "fashion-mnist", seed: int = 1, **options: Any) -> Federated:
    return load_federated(name, **{"clients": 5, "partition": "iid", "seed": seed, **options})


def mapped(tensor: torch.Tensor, path: Path) -> bool:
    """Whether the tensor's memory is that file's, by what the operating system says."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, last = line.split(maxsplit=5)
        first, end = (int(place, 16) for place in span.split("-"))
        if first <= tensor.data_ptr() < end:
            return last == str(path)
    return False


@pytest.mark.parametrize(("name", "arrays"), [("fashion-mnist", FASHION), ("cifar10", CIFAR)])
@pytest.mark.usefixtures("stored")
def test_a_stored_dataset_is_mapped_and_right_to_the_bit(
    folder: Path, name: str, arrays: dict[str, np.ndarray]
) -> None:
    data = load(name)
    images = CATALOGUE[name].scaling
    for split in ("train", "test"):
        x, y = getattr(data, f"{split}_x"), getattr(data, f"{split}_y")
        assert mapped(x, folder / name / f"{split}_x.npy")
        assert mapped(y, folder / name / f"{split}_y.npy")
        pixels = arrays[f"{split}_x"].astype(np.float32)
        channels = (1, -1, 1, 1) if pixels.ndim == 4 else (1,)
        mean, deviation = (np.float32(given).reshape(channels) for given in (images.mean, images.deviation))
        expected = (pixels / np.float32(255) - mean) / deviation
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        assert x.numpy().tobytes() == expected.tobytes()
        assert y.tolist() == arrays[f"{split}_y"].tolist()
    assert isinstance(store.find(CATALOGUE[name]).arrays()["train_x"], np.memmap)  # type: ignore[union-attr]


@pytest.mark.usefixtures("stored")
def test_writing_into_a_tensor_does_not_change_the_file() -> None:
    data = load()
    before, first = data.fingerprint(), data.train_x[0, 0, 0].item()
    data.train_x[:] = 7
    data.train_y[:] = 3
    assert data.train_x.unique().tolist() == [7]
    found = store.find(CATALOGUE["fashion-mnist"])
    assert found is not None
    assert found.faults() == []
    assert load().train_x[0, 0, 0].item() == first
    # The fingerprint is the name of what was checked when it came: nothing is read for it.
    assert data.fingerprint() == before


@pytest.mark.usefixtures("stored")
def test_the_fingerprint_tells_content_and_partition_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prints = [
        load().fingerprint(),
        load(seed=2).fingerprint(),
        load(clients=4).fingerprint(),
        load(partition="one-class", clients=10).fingerprint(),
        load("cifar10").fingerprint(),
    ]
    assert load().fingerprint() == prints[0]

    one_pixel = {**FASHION, "test_x": FASHION["test_x"].copy()}
    one_pixel["test_x"][0, 0, 0] ^= 1
    other = entry(FASHION_MNIST, one_pixel, ())
    monkeypatch.setitem(CATALOGUE, "fashion-mnist", other)
    monkeypatch.setenv("FLEXFL_DATA", str(tmp_path / "another"))
    with store.locked(other):
        store.save(other, one_pixel, "a test")
    prints.append(load().fingerprint())
    assert len(set(prints)) == len(prints)


def test_the_fingerprint_does_not_depend_on_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, web: Loopback
) -> None:
    prints = set()
    for number, source in enumerate(("one", "two")):
        monkeypatch.setenv("FLEXFL_DATA", str(tmp_path / str(number)))
        monkeypatch.setitem(CATALOGUE, "fashion-mnist", fashion())
        with store.locked(fashion()):
            store.save(fashion(), FASHION, source)
        prints.add(load().fingerprint())
    monkeypatch.setenv("FLEXFL_DATA", str(tmp_path / "web"))
    fetch(fashion(good(web)))
    prints.add(load().fingerprint())
    assert len(prints) == 1


def test_an_installed_package_is_used_without_asking(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, web: Loopback, folder: Path
) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    for name, content in idx_files().items():
        (installed / name).write_bytes(content)
    sources = good(web), SystemPackage("dataset", installed)
    monkeypatch.setitem(CATALOGUE, "fashion-mnist", fashion(*sources))
    assert load().train_y.tolist() == FASHION["train_y"].tolist()
    assert web.requests == []
    assert names(folder) == [".fashion-mnist.lock", "fashion-mnist"]


def test_a_dataset_that_is_not_here(monkeypatch: pytest.MonkeyPatch, web: Loopback) -> None:
    monkeypatch.setitem(CATALOGUE, "fashion-mnist", fashion(good(web)))
    with pytest.raises(FlexFLError) as caught:
        load()
    assert str(caught.value) == (
        "fashion-mnist is not on this machine yet; fetch it with: flexfl data fetch fashion-mnist "
        "(or set data.path to your own files)"
    )
    assert web.requests == []


def test_a_store_that_cannot_be_used_says_so(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(CATALOGUE, "fashion-mnist", fashion())
    folder.write_text("a file", encoding="utf-8")
    with pytest.raises(FlexFLError, match="cannot be written"):
        load()


@pytest.mark.usefixtures("stored")
def test_a_dataset_that_is_here_needs_no_writing(folder: Path) -> None:
    """It may lie in a folder that can only be read, as on a cluster: there is not even a lock."""
    for lock in folder.glob("*.lock"):
        lock.unlink()
    assert load().clients == 5
    assert names(folder) == ["cifar10", "fashion-mnist"]


def test_files_of_one_s_own_with_an_array_that_has_no_axes(tmp_path: Path) -> None:
    zero = np.zeros((), np.float32)
    np.savez(tmp_path / "a.npz", train_x=zero, train_y=zero, test_x=zero, test_y=zero)
    with pytest.raises(InputError, match=r"as many labels as samples, and at least one, got \(0, 0\)"):
        load("file", path=str(tmp_path / "a.npz"))


def test_images_in_colour_have_their_channels_first() -> None:
    with pytest.raises(InputError, match="move the channels to the front"):
        CIFAR10(np.zeros((2, 32, 32, 3), np.uint8))


@pytest.mark.parametrize("images", [PixelScaling((0.5,), (0.25,)), CIFAR10])
def test_looked_up_bytes_are_what_the_formula_gives(images: PixelScaling) -> None:
    pixels = random_arrays(3, (3, 8, 8), 30, 1)["train_x"]
    assert images(pixels).tobytes() == images(pixels.astype(np.float32)).tobytes()
