"""Folders that a person names for what is made of runs."""

from __future__ import annotations

import os
from pathlib import Path

from flexfl.errors import FlexFLError


def make_folder(path: Path, field: str = "--out") -> None:
    """Have a folder there to write into, or say why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(path, os.W_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise FlexFLError(f"{field} must be a folder to write into, got {path} ({reason}); choose another")
