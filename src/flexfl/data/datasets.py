"""Datasets by name, as tensors ready for a network."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flexfl.data.federated import Federated, Pair
from flexfl.data.idx import read_idx
from flexfl.errors import Fault, FlexFLError, InputError
from flexfl.spec.sections import DataSpec

_ARRAYS = ("train_x", "train_y", "test_x", "test_y")
# What NumPy raises for files that are not, or not quite, an archive of plain arrays.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    NotImplementedError,
    zlib.error,
    zipfile.BadZipFile,
)
_DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True)
class Images:
    """How bytes become network input: (pixel/255 − mean) / deviation, by channel."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, pixels: Any) -> torch.Tensor:
        scaled = torch.as_tensor(np.array(pixels), dtype=torch.float32) / 255
        if len(self.mean) == 1:
            return (scaled - self.mean[0]) / self.deviation[0]
        if scaled.ndim != 4 or scaled.shape[1] != len(self.mean):
            rule = f"must hold images of shape ({len(self.mean)}, height, width)"
            raise InputError([Fault("data.path", rule, tuple(scaled.shape[1:]), "put the channels first")])
        shape = (1, len(self.mean), 1, 1)
        return (scaled - torch.tensor(self.mean).reshape(shape)) / torch.tensor(self.deviation).reshape(shape)


FASHION = Images((0.1307,), (0.3081,))
CIFAR10 = Images((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def load_federated(spec: DataSpec, *, seed: int) -> Federated:
    """The dataset that `spec` names, spread over its clients."""
    train, test = load_pairs(spec)
    return Federated.split(train, test, clients=spec.clients, partition=spec.partition, seed=seed)


def load_pairs(spec: DataSpec) -> tuple[Pair, Pair]:
    """Training and test set."""
    if spec.name == "fashion-mini":
        with resources.as_file(resources.files("flexfl.data") / "fashion_mini/fashion_mini.npz") as path:
            return _pairs(_read_npz(path), FASHION)
    if spec.name == "fashion-mnist":
        return _pairs(_read_fashion(Path(spec.path) if spec.path else _DEBIAN_FASHION), FASHION)
    if spec.path is None:
        remedy = f"give an .npz file with the arrays {', '.join(_ARRAYS)}"
        raise InputError([Fault("data.path", f"is needed for the dataset {spec.name}", None, remedy)])
    arrays = _read_npz(Path(spec.path))
    if spec.name == "cifar10":
        return _pairs(arrays, CIFAR10)
    return _pairs(arrays, None)


def _pairs(arrays: dict[str, Any], images: Images | None) -> tuple[Pair, Pair]:
    """Tensors; without `images` the features are taken as they are, as float32."""

    def pair(split: str) -> Pair:
        features, labels = arrays[f"{split}_x"], arrays[f"{split}_y"]
        for name, array in ((f"{split}_x", features), (f"{split}_y", labels)):
            if array.dtype.kind not in "uifb":
                rule = f"must hold numbers in {name}"
                raise InputError([Fault("data.path", rule, str(array.dtype), "save it as numbers")])
        if labels.dtype.kind != "f":
            labels = labels.astype(np.int64)
        scaled = images(features) if images else torch.as_tensor(features.astype(np.float32))
        return scaled, torch.as_tensor(labels)

    return pair("train"), pair("test")


def _read_npz(path: Path) -> dict[str, Any]:
    """The four arrays of an .npz file; nothing in it is ever executed."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in _ARRAYS if name not in archive]
            if not missing:
                return {name: archive[name] for name in _ARRAYS}
    except _UNREADABLE as error:
        remedy = "save it with numpy.savez"
        fault = Fault("data.path", f"must be an .npz file of plain arrays ({error})", str(path), remedy)
        raise InputError([fault]) from error
    rule = f"must hold the arrays {', '.join(_ARRAYS)}"
    raise InputError([Fault("data.path", rule, f"{path} without {', '.join(missing)}", "add them")])


def _read_fashion(folder: Path) -> dict[str, Any]:
    files = {
        "train_x": "train-images-idx3-ubyte.gz",
        "train_y": "train-labels-idx1-ubyte.gz",
        "test_x": "t10k-images-idx3-ubyte.gz",
        "test_y": "t10k-labels-idx1-ubyte.gz",
    }
    if absent := [name for name in files.values() if not (folder / name).is_file()]:
        raise FlexFLError(
            f"Fashion-MNIST is not in {folder} ({', '.join(absent)} missing); put the four IDX files in a "
            "folder and name it in data.path, or install the Debian package dataset-fashion-mnist"
        )
    return {name: read_idx(folder / file) for name, file in files.items()}
