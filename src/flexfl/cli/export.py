"""flexfl export: write evaluations and metrics as tables."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    csv = "csv"
    parquet = "parquet"


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    format_: Annotated[Format, typer.Option("--format", help="Format of the tables.")] = Format.csv,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where to write.", show_default="DIR")
    ] = None,
) -> None:
    """Write evaluations and metrics of a run as tables (also per client, where recorded)."""
    from flexfl.results.export import export_run

    for path in export_run(directory, out or directory, format_.value):
        typer.echo(path)
