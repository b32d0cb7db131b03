"""The published formats of CIFAR-10: Python pickles, or PNG files with an image in each row."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import warnings
from typing import Any

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
    """Read the pickles of `cifar-10-python.tar.gz`, without executing anything in them."""
    batches = {name: _unpickle(name, files[name]) for name in BATCHES}
    pixels = {name: _pixels(name, batch.get("data")) for name, batch in batches.items()}
    labels = {name: _labels(name, batch.get("labels")) for name, batch in batches.items()}
    return _joined(pixels, labels)


def read_pictures(files: Members) -> Arrays:
    """Read the PNG files of the npm package: each row has the 1024 RGB pixels of an image."""
    pixels = {name: _read_png(f"{name}.png", files[f"{name}.png"]) for name in BATCHES}
    train, test = (_read_labels(name, files[name]) for name in PICTURES[-2:])
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


def _read_png(name: str, content: bytes) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow warns of large pictures before it refuses larger ones
            with Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
                if picture.width != _SIDE * _SIDE:
                    raise FlexFLError(f"{name} must be {_SIDE * _SIDE} pixels wide, got {picture.width}")
                rows = np.asarray(picture.convert("RGB"))
    except FlexFLError:
        raise
    except Exception as error:  # a broken picture may raise almost anything
        raise FlexFLError(f"{name} cannot be read as a picture ({error})") from error
    return rows.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)


def _read_labels(name: str, content: bytes) -> NDArray[np.uint8]:
    try:
        return _labels(name, json.loads(content))
    except (ValueError, RecursionError) as error:
        raise FlexFLError(f"{name} is not a list of labels ({error})") from error


def _labels(name: str, given: Any) -> NDArray[np.uint8]:
    if not isinstance(given, list) or not all(type(label) is int and 0 <= label < 10 for label in given):
        raise FlexFLError(f"{name} must hold a list of labels from 0 to 9")
    return np.array(given, dtype=np.uint8)


def _pixels(name: str, given: Any) -> NDArray[np.uint8]:
    content = given.content if isinstance(given, _Array) else None
    if content is None or content.shape[1:] != (3 * _SIDE * _SIDE,):
        raise FlexFLError(f"{name} must hold bytes, {3 * _SIDE * _SIDE} for each image")
    return content.reshape(-1, 3, _SIDE, _SIDE)


# Pickles ---------------------------------------------------------------------------------------
# A pickle is a program: it names objects, calls them and sets their attributes. The only objects it
# can name here are the stand-ins below, which have no attributes to set. NumPy itself is not called.

_MOST_TUPLES = 1000
"""A batch has about ten. Hashing millions of nested tuples would overflow the stack."""
_MOST_CALLS = 20
"""A batch creates one array with a few calls; each further array could be a copy of all its bytes."""


def _unpickle(name: str, content: bytes) -> dict[str, Any]:
    try:
        _check_program(content)
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a broken pickle may raise almost anything
        raise FlexFLError(f"{name} cannot be read as a batch ({error})") from error
    if not isinstance(batch, dict):
        raise FlexFLError(f"{name} must hold a table, got {type(batch).__name__}")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}


def _check_program(content: bytes) -> None:
    """Raise UnpicklingError if the pickle would need much more memory than its length."""
    tuples = calls = 0
    for step, (code, argument, _) in enumerate(pickletools.genops(content)):
        tuples += code.name.startswith("TUPLE")
        calls += code.name in ("REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX", "INST", "OBJ")
        if tuples > _MOST_TUPLES:
            raise pickle.UnpicklingError("it is too deeply nested")
        if calls > _MOST_CALLS:
            raise pickle.UnpicklingError("it creates more than an array")
        if code.name.endswith("PUT") and isinstance(argument, int) and argument > step:
            # the unpickler allocates memory for all smaller numbers, too
            raise pickle.UnpicklingError(f"it stores a value under number {argument} in step {step}")


class _Name:
    """Stands in for numpy.ndarray, which may be named but not called."""

    __slots__ = ()


class _ByteType:
    """Stands in for numpy.dtype and for its result, which must be unsigned bytes."""

    __slots__ = ()

    def __call__(self, code: str, align: int = 0, copy: int = 1) -> _ByteType:
        if code != "u1":
            raise pickle.UnpicklingError(f"arrays of {code} are not allowed in a dataset")
        return self

    def __setstate__(self, details: object) -> None:
        """Ignore details such as byte order, which bytes do not have."""


class _Array:
    """Stands in for an array whose content the pickle sets."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, int, str | bytes]) -> None:
        _, shape, kind, columns_first, raw = state
        if kind is not _BYTES:
            raise pickle.UnpicklingError("only arrays of bytes are allowed in a dataset")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 wrote bytes as str
        array = np.frombuffer(raw, np.uint8).reshape(tuple(shape), order="F" if columns_first else "C")
        self.content = np.ascontiguousarray(array)


class _Reconstruct:
    """Stands in for the function that creates an empty array."""

    __slots__ = ()

    def __call__(self, kind: object, shape: object, code: object) -> _Array:
        if kind is not _ND_ARRAY:
            raise pickle.UnpicklingError("only plain arrays are allowed in a dataset")
        return _Array()


class _Encode:
    """Stands in for _codecs.encode, with which old pickles write bytes; only latin1 is allowed."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if encoding not in ("latin1", "latin-1", "iso-8859-1"):
            raise pickle.UnpicklingError(f"the codec {encoding} is not allowed in a dataset")
        return text.encode("latin1")


_ND_ARRAY, _BYTES, _RECONSTRUCT, _ENCODE = _Name(), _ByteType(), _Reconstruct(), _Encode()
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): _ND_ARRAY,
    ("numpy", "dtype"): _BYTES,
    ("_codecs", "encode"): _ENCODE,
}


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler for arrays of bytes and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a dataset") from None
