"""Files on the web; interrupted downloads are resumed."""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from flexfl.data.archives import Members, read_members
from flexfl.data.sources import OnBytes, SourceError

_TIMEOUT = 30.0  # seconds without a byte
_ATTEMPTS = 4
_CHUNK_BYTES = 1 << 18
_MOST_BYTES = 2**30
_LONGEST_NAME = 120
_CHECKSUMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True)
class Remote:
    """One file: its address, and its checksum as "sha256-<base64 or hex>" where it is known."""

    url: str
    checksum: str = ""

    @property
    def name(self) -> str:
        """A plain file name, made from the address."""
        last = self.url.partition("?")[0].rpartition("/")[2]
        return re.sub(r"[^\w.~+%-]", "_", last, flags=re.ASCII).lstrip(".")[-_LONGEST_NAME:] or "file"


@dataclass(frozen=True)
class OfficialArchive:
    """The download of a dataset's authors: one archive, or several files."""

    files: Sequence[Remote]
    local = False

    @property
    def title(self) -> str:
        return f"official archive ({', '.join(file.name for file in self.files)})"

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        paths = [download(file, work, on_bytes) for file in self.files]
        if len(paths) == 1:
            return read_members(paths[0], wanted)
        return {path.name: path.read_bytes() for path in paths if path.name in wanted}


def download(remote: Remote, work: Path, on_bytes: OnBytes) -> Path:
    """Download a file into `work`, and return its path; resume a partial download.

    Raises:
        SourceError: The download failed, or the checksum is wrong.
    """
    path, partial = work / remote.name, work / f"{remote.name}.partial"
    if path.exists():
        return path
    if remote.checksum and not remote.checksum.startswith(tuple(f"{kind}-" for kind in _CHECKSUMS)):
        raise SourceError(f"the checksum of {remote.name} is of an unknown kind: {remote.checksum[:20]}")
    progressed = False

    def on_chunk(name: str, have: int, total: int | None) -> None:
        nonlocal progressed
        progressed = True
        on_bytes(name, have, total)

    for attempt in range(_ATTEMPTS):
        progressed = False
        try:
            _resume(remote, partial, on_chunk)
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            if attempt + 1 == _ATTEMPTS or not progressed:
                raise SourceError(_reason(error)) from error
    if remote.checksum and not matches(partial, remote.checksum):
        partial.unlink()
        raise SourceError(f"{remote.name} has the wrong checksum; it was deleted")
    partial.replace(path)
    return path


def _resume(remote: Remote, partial: Path, on_bytes: OnBytes) -> None:
    """Download the missing part of a file; start over if the server cannot resume."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "flexfl"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return None  # complete already
        partial.unlink()  # longer than the file: of another one
        return _resume(remote, partial, on_bytes)
    with answer:
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0  # the server does not support ranges
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            partial.unlink(missing_ok=True)
            raise OSError("the server sends another range than requested")
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        _check_size(remote, partial, total or 0)
        with partial.open("ab" if have else "wb") as file:
            while chunk := answer.read(_CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                _check_size(remote, partial, have)
                on_bytes(remote.name, have, total)
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have} of {total} bytes")
    return None


def _check_size(remote: Remote, partial: Path, size: int) -> None:
    """Raise SourceError if a file is larger than any dataset of the catalogue."""
    if size > _MOST_BYTES:
        partial.unlink(missing_ok=True)
        raise SourceError(f"{remote.name} has more than {_MOST_BYTES} bytes, thus is not the requested file")


def matches(path: Path, checksum: str) -> bool:
    """Return whether a file has a checksum, given as "sha256-" or "sha512-" and hex or base64."""
    kind, _, wanted = checksum.partition("-")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, kind).digest()
    return wanted in (digest.hex(), base64.b64encode(digest).decode())


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(getattr(cause, "strerror", None) or cause or type(error).__name__)
