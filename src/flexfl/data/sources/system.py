"""Installed system packages: files in a known folder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from flexfl.data.archives import Members, read_members
from flexfl.data.sources import OnBytes, SourceError


@dataclass(frozen=True)
class SystemPackage:
    """An installed package with its files in `folder`."""

    package: str
    folder: Path
    local = True

    @property
    def title(self) -> str:
        return f"installed package {self.package}"

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        if not self.folder.is_dir():
            raise SourceError(f"{self.folder} does not exist")
        return read_members(self.folder, wanted)
