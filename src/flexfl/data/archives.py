"""Files out of folders and archives, read into memory: nothing is ever unpacked onto the disk.

So no archive can write outside of anything, whatever names and links it holds.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO

from flexfl.errors import FlexFLError

Members = dict[str, bytes]
"""Content of files by their names, without folders."""

_MOST_BYTES = 2 * 2**30
"""No dataset here is larger; an archive that is was made to fill the memory."""
_AR_START, _AR_HEADER = b"!<arch>\n", 60


def read_members(path: Path, wanted: Collection[str]) -> Members:
    """Those of the `wanted` files that lie in a folder, a tar archive or a Debian package."""
    try:
        if path.is_dir():
            return {name: (path / name).read_bytes() for name in wanted if (path / name).is_file()}
        with path.open("rb") as file:
            start = file.read(len(_AR_START))
            file.seek(0)
            return _from_tar(_data_of_package(file) if start == _AR_START else file, path, wanted)
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it ends too early"
        raise FlexFLError(f"{path} cannot be read as a folder or an archive ({reason})") from error


def _from_tar(file: IO[bytes], path: Path, wanted: Collection[str]) -> Members:
    found: Members = {}
    with tarfile.open(fileobj=file, mode="r:*") as archive:
        for member in archive:
            if member.offset_data + member.size > _MOST_BYTES:
                raise FlexFLError(
                    f"{path} holds more than {_MOST_BYTES / 2**30:.0f} GiB; it is not what was asked"
                )
            name = member.name.rpartition("/")[2]
            if name not in wanted or not member.isfile():
                continue
            if name in found:
                raise FlexFLError(f"{path} holds {name} more than once; it is not what was asked")
            content = archive.extractfile(member)
            assert content is not None  # a regular file has content
            found[name] = content.read()
    return found


def _data_of_package(file: IO[bytes]) -> IO[bytes]:
    """The data archive in a Debian package, which is an `ar` archive of three files."""
    file.seek(len(_AR_START))
    while len(header := file.read(_AR_HEADER)) == _AR_HEADER:
        name, size = (
            header[:16].decode("ascii", "replace").strip(" /"),
            header[48:58].decode("ascii", "replace"),
        )
        if not size.strip().isdigit() or int(size) > _MOST_BYTES:
            break
        content = file.read(int(size) + int(size) % 2)
        if name.startswith("data.tar"):
            return io.BytesIO(content)
    raise tarfile.ReadError("no data in the package")
