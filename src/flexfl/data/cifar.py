"""CIFAR-10 as it is published: Python's batches, or one picture with an image in each row."""

from __future__ import annotations

import codecs
import io
import json
import pickle
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flexfl.data.archives import Members
from flexfl.errors import FlexFLError

Arrays = dict[str, NDArray[Any]]

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
BATCHES = (*_TRAIN, "test_batch")
PICTURES = (*(f"{name}.png" for name in BATCHES), "train_lables.json", "test_lables.json")  # sic
_SIDE = 32


def read_batches(files: Members) -> Arrays:
    """From `cifar-10-python.tar.gz`: pickles, read without running anything in them."""
    batches = {name: _unpickled(name, files[name]) for name in BATCHES}
    pixels = {name: _pixels(name, batch.get("data")) for name, batch in batches.items()}
    labels = {name: _labels(name, batch.get("labels")) for name, batch in batches.items()}
    return _joined(pixels, labels)


def read_pictures(files: Members) -> Arrays:
    """From the npm package: rows of 1024 pixels, red, green and blue side by side in each."""
    from PIL import Image, UnidentifiedImageError

    pixels = {}
    for name in BATCHES:
        try:
            with Image.open(io.BytesIO(files[f"{name}.png"]), formats=("PNG",)) as picture:
                rows = np.asarray(picture.convert("RGB"))
        except (
            OSError,
            ValueError,
            SyntaxError,
            UnidentifiedImageError,
            Image.DecompressionBombError,
        ) as error:
            raise FlexFLError(f"{name}.png cannot be read as a picture ({error})") from error
        if rows.shape[1] != _SIDE * _SIDE:
            raise FlexFLError(f"{name}.png must be {_SIDE * _SIDE} pixels wide, got {rows.shape[1]}")
        pixels[name] = rows.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
    train, test = (_listed(name, files[name]) for name in PICTURES[-2:])
    sizes = np.cumsum([len(pixels[name]) for name in _TRAIN])[:-1]
    labels = dict(zip(_TRAIN, np.split(train, sizes), strict=True)) | {"test_batch": test}
    return _joined(pixels, labels)


def _joined(pixels: dict[str, NDArray[Any]], labels: dict[str, NDArray[Any]]) -> Arrays:
    return {
        "train_x": np.concatenate([pixels[name] for name in _TRAIN]),
        "train_y": np.concatenate([labels[name] for name in _TRAIN]),
        "test_x": np.ascontiguousarray(pixels["test_batch"]),
        "test_y": labels["test_batch"],
    }


def _listed(name: str, content: bytes) -> NDArray[np.uint8]:
    try:
        return _labels(name, json.loads(content))
    except ValueError as error:
        raise FlexFLError(f"{name} is not a list of labels ({error})") from error


def _labels(name: str, given: Any) -> NDArray[np.uint8]:
    if not isinstance(given, list) or not all(type(label) is int and 0 <= label < 10 for label in given):
        raise FlexFLError(f"{name} must hold a list of labels from 0 to 9")
    return np.array(given, dtype=np.uint8)


def _pixels(name: str, given: Any) -> NDArray[np.uint8]:
    if (
        not isinstance(given, np.ndarray)
        or given.dtype != np.uint8
        or given.shape[1:] != (3 * _SIDE * _SIDE,)
    ):
        raise FlexFLError(f"{name} must hold bytes, {3 * _SIDE * _SIDE} for each image")
    return given.reshape(-1, 3, _SIDE, _SIDE)


# Pickles ---------------------------------------------------------------------------------------


def _unpickled(name: str, content: bytes) -> dict[str, Any]:
    try:
        batch = _OnlyArrays(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a broken pickle may raise almost anything
        raise FlexFLError(f"{name} cannot be read as a batch ({error})") from error
    if not isinstance(batch, dict):
        raise FlexFLError(f"{name} must hold a table, got {type(batch).__name__}")
    return batch


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """How old pickles spell bytes; no other codec is let in."""
    if codecs.lookup(encoding).name != "iso8859-1":
        raise pickle.UnpicklingError(f"the codec {encoding} is not allowed")
    return text.encode("latin1")


_ARRAY = object()
"""Stands for numpy.ndarray, which a pickle may name but not call."""


def _reconstruct(kind: object, shape: tuple[int, ...], code: bytes) -> NDArray[np.uint8]:
    """An empty array, to be filled by the pickle."""
    if kind is not _ARRAY or tuple(shape) != (0,):
        raise pickle.UnpicklingError("only plain arrays are allowed")
    return np.empty(0, np.uint8)


class _OnlyArrays(pickle.Unpickler):
    """Lets arrays of numbers in, and nothing that could be called."""

    _allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _ARRAY,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _latin1,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a dataset") from None
