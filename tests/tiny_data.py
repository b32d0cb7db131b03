"""Datasets of a few images, in all the forms in which the real ones are published."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from flexfl.data import cifar, idx
from flexfl.data.catalogue import CIFAR_10, FASHION_MNIST, Dataset
from flexfl.data.sources import Source
from flexfl.data.sources.web import OfficialArchive, Remote
from loopback import Loopback

Arrays = dict[str, np.ndarray]


def random_arrays(seed: int, shape: tuple[int, ...], train: int, test: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "train_x": rng.integers(0, 256, (train, *shape), dtype=np.uint8),
        "train_y": rng.permutation(np.arange(train, dtype=np.uint8) % 10),
        "test_x": rng.integers(0, 256, (test, *shape), dtype=np.uint8),
        "test_y": rng.permutation(np.arange(test, dtype=np.uint8) % 10),
    }


FASHION = random_arrays(1, (28, 28), 20, 10)
CIFAR = random_arrays(2, (3, 32, 32), 15, 4)


def entry(like: Dataset, arrays: Arrays, sources: Sequence[Source]) -> Dataset:
    return replace(
        like,
        shapes={name: array.shape for name, array in arrays.items()},
        digests={name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()},
        sources=tuple(sources),
    )


def fashion(*sources: Source) -> Dataset:
    return entry(FASHION_MNIST, FASHION, sources)


def cifar10(*sources: Source) -> Dataset:
    return entry(CIFAR_10, CIFAR, sources)


# Files -----------------------------------------------------------------------------------------


def idx_bytes(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_files(arrays: Arrays = FASHION, *, packed: bool = True) -> dict[str, bytes]:
    files = {idx.FILES[name]: idx_bytes(array) for name, array in arrays.items()}
    return {f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in files.items()} if packed else files


def _batches(arrays: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    trained = zip(np.array_split(arrays["train_x"], 5), np.array_split(arrays["train_y"], 5), strict=True)
    return dict(zip(cifar.BATCHES, [*trained, (arrays["test_x"], arrays["test_y"])], strict=True))


def _text(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()


def python_2_array(pixels: np.ndarray, *, fortran: bool = False) -> bytes:
    """Opcodes of an array of bytes as Python 2 wrote them, with protocol 2."""
    rows, columns = pixels.shape
    raw = pixels.tobytes(order="F" if fortran else "C")
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + _text("b") + b"\x87R"
        b"(K\x01" + struct.pack("<cHcHc", b"M", rows, b"M", columns, b"\x86") + b"cnumpy\ndtype\n"
        b""
        + _text("u1")
        + b"K\0K\x01\x87R(K\x03"
        + _text("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
        b"" + (b"\x88" if fortran else b"\x89") + b"T" + struct.pack("<I", len(raw)) + raw + b"tb"
    )


def python_2_batch(pixels: np.ndarray, labels: np.ndarray, *, fortran: bool = False) -> bytes:
    """A batch as in the official archive: its keys and its bytes are Python 2's `str`."""
    listed = b"".join(b"K" + bytes([label]) for label in labels)
    rows = pixels.reshape(len(pixels), -1)
    return (
        b"\x80\x02}(" + _text("batch_label") + _text("a batch") + _text("labels") + b"](" + listed + b"e"
        b"" + _text("data") + python_2_array(rows, fortran=fortran) + b"u."
    )


def python_3_batch(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """The same, read with encoding="bytes" and written again by Python 3: its keys are bytes."""
    batch = {b"labels": labels.tolist(), b"data": pixels.reshape(len(pixels), -1)}
    return pickle.dumps(batch, protocol=2)


def batches(arrays: Arrays = CIFAR, write: Any = python_2_batch) -> dict[str, bytes]:
    return {name: write(pixels, labels) for name, (pixels, labels) in _batches(arrays).items()}


def png(pixels: np.ndarray) -> bytes:
    """Images as rows of a picture."""
    rows = pixels.transpose(0, 2, 3, 1).reshape(len(pixels), -1, 3)
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rows)).save(stream, "PNG")
    return stream.getvalue()


def pictures(arrays: Arrays = CIFAR) -> dict[str, bytes]:
    labels = {f"{split}_lables.json": arrays[f"{split}_y"].tolist() for split in ("train", "test")}
    return {f"{name}.png": png(pixels) for name, (pixels, _) in _batches(arrays).items()} | {
        name: json.dumps(given).encode() for name, given in labels.items()
    }


# Archives --------------------------------------------------------------------------------------


def tar(files: Mapping[str, bytes], folder: str = "", packing: str = "gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{packing}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def ar(files: Mapping[str, bytes]) -> bytes:
    parts = [b"!<arch>\n"]
    for name, content in files.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        parts += [header.encode("ascii"), content, b"\n" * (len(content) % 2)]
    return b"".join(parts)


def deb(files: Mapping[str, bytes], packing: str = "xz") -> bytes:
    """A package as dpkg-deb builds it."""
    control = tar({"control": b"Package: dataset\n"}, "./")
    data = tar(files, "./usr/share/datasets/fashion-mnist/", packing)
    suffix = f".{packing}" if packing else ""
    return ar({"debian-binary": b"2.0\n", "control.tar.gz": control, f"data.tar{suffix}": data})


# Where they are offered ------------------------------------------------------------------------


def offered(web: Loopback, name: str, content: bytes, checksum: str = "") -> OfficialArchive:
    web.files[name] = content
    return OfficialArchive([Remote(f"{web.url}/{name}", checksum)])


def good(web: Loopback) -> OfficialArchive:
    """All of the small Fashion-MNIST."""
    return offered(web, "good.tar.gz", tar(idx_files()))


DONE = [".fashion-mnist.lock", "fashion-mnist"]
"""What a store holds when all went well."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
