"""Sources of datasets, one kind per file."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol, runtime_checkable

from flexfl.data.archives import Members
from flexfl.errors import FlexFLError

__all__ = ["OnBytes", "Source", "SourceError"]

OnBytes = Callable[[str, int, int | None], None]
"""Called during a download with the file's name, the bytes so far, and the total if known."""


class SourceError(FlexFLError):
    """A source cannot be used; the message gives the reason."""


@runtime_checkable
class Source(Protocol):
    """A source of a dataset."""

    @property
    def title(self) -> str:
        """A short description for the user."""
        ...

    @property
    def local(self) -> bool:
        """Whether it needs no network."""
        ...

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        """Return those of the `wanted` files that the source has.

        Args:
            wanted: Names of files.
            work: The folder for downloads.
            on_bytes: Called with the progress of a download.

        Raises:
            SourceError: The source cannot be used.
        """
        ...
