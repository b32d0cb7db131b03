"""Where a dataset can come from; one file for each kind of place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol, runtime_checkable

from flexfl.data.archives import Members
from flexfl.errors import FlexFLError

__all__ = ["OnBytes", "Source", "SourceError"]

OnBytes = Callable[[str, int, int | None], None]
"""Told while a file comes in: its name, bytes so far, bytes in all if known."""


class SourceError(FlexFLError):
    """A source that cannot be used here and now, and why."""


@runtime_checkable
class Source(Protocol):
    """One place; `local` ones need no network."""

    @property
    def title(self) -> str: ...

    @property
    def local(self) -> bool: ...

    def read(self, wanted: Collection[str], work: Path, on_bytes: OnBytes) -> Members:
        """Those of the `wanted` files it has; `work` keeps what was downloaded until all is well."""
        ...
