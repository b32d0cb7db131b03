"""A table as CSV and as Markdown, for the pages of docs/evidence.md."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path


def write(path: Path, header: list[str], rows: Iterable[list[object]]) -> None:
    """Write a table as CSV and as Markdown, and print it."""
    listed = [[str(entry) for entry in row] for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *listed])
    lines = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *listed]]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
