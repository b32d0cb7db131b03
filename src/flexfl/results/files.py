"""Output folders, and text files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from flexfl.errors import FlexFLError


def create_output_folder(path: Path, field: str = "out=…") -> None:
    """Create a user-supplied output folder, and check that it is writable.

    Args:
        path: The folder; missing parents are created, too.
        field: The argument that named it, for the error message.

    Raises:
        FlexFLError: The folder cannot be created or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(path, os.W_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise FlexFLError(f"{path} must be a writable folder ({reason}); choose another {field}")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: after a crash either the old or the new content is there."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
