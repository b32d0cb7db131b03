"""Reading files from folders and archives into memory; nothing is unpacked onto the disk.

So no archive can write to the disk, whatever names and links it contains.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from flexfl.errors import FlexFLError

Members = dict[str, bytes]
"""Content of files by file name, without folders."""

_MOST_BYTES = 2 * 2**30
"""More than any dataset of the catalogue has; a larger archive may be an attempt to exhaust memory."""
_MOST_MEMBERS = 10_000
_AR_START, _AR_HEADER = b"!<arch>\n", 60
_COMPRESSED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open, b"BZh": bz2.open}


def read_members(path: Path, wanted: Collection[str]) -> Members:
    """Return those of the `wanted` files that a folder, a tar archive or a Debian package contains.

    Raises:
        FlexFLError: The path cannot be read.
    """
    try:
        if path.is_dir():
            return {name: (path / name).read_bytes() for name in wanted if (path / name).is_file()}
        with path.open("rb") as file:
            return _read_tar(_package_data(file) if _starts_with(file, _AR_START) else file, wanted)
    except Exception as error:  # a broken archive may raise almost anything
        reason = getattr(error, "strerror", None) or str(error) or "it ends too early"
        raise FlexFLError(f"{path} cannot be read as a folder or an archive ({reason})") from error


def _starts_with(file: IO[bytes], magic: bytes) -> bool:
    start = file.read(len(magic))
    file.seek(0)
    return start == magic


class _BoundedReader:
    """A file for tarfile that refuses to read too much, before memory is allocated for it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        _check_size(size)
        _check_size(self.tell() + size)
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        _check_size(offset)
        return self._file.seek(offset)


def _check_size(size: int) -> None:
    if not 0 <= size <= _MOST_BYTES:
        raise tarfile.ReadError(f"it claims to hold more than {_MOST_BYTES / 2**30:.0f} GiB")


def _read_tar(file: IO[bytes], wanted: Collection[str]) -> Members:
    found: Members = {}
    decompress = next((opener for magic, opener in _COMPRESSED.items() if _starts_with(file, magic)), None)
    stream: Any = _BoundedReader(decompress(file) if decompress else file)
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for count, member in enumerate(archive):
            _check_size(member.size)  # a negative size would send tarfile into an endless loop
            _check_size(member.offset_data + member.size)
            if count >= _MOST_MEMBERS:
                raise tarfile.ReadError(f"it holds more than {_MOST_MEMBERS} files")
            name = member.name.rpartition("/")[2]
            if name not in wanted or not member.isfile() or member.issparse():
                continue
            if name in found:
                raise tarfile.ReadError(f"it holds {name} more than once")
            content = archive.extractfile(member)
            assert content is not None  # a regular file has content
            found[name] = content.read()
    return found


def _package_data(file: IO[bytes]) -> IO[bytes]:
    """Return the data archive in a Debian package, which is an `ar` archive of three files."""
    file.seek(len(_AR_START))
    while len(header := file.read(_AR_HEADER)) == _AR_HEADER:
        name, size = (
            header[:16].decode("ascii", "replace").strip(" /"),
            header[48:58].decode("ascii", "replace"),
        )
        if not size.strip().isdigit() or int(size) > _MOST_BYTES:
            break
        content = file.read(int(size) + int(size) % 2)
        if name == "data.tar.zst":
            raise tarfile.ReadError(
                "it is compressed with zstd; unpack it with dpkg-deb -x and use its files"
            )
        if name.startswith("data.tar"):
            return io.BytesIO(content)
    raise tarfile.ReadError("no data in the package")
