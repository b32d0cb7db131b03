"""flexfl report: write figures and an HTML page from run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Where to write.", show_default="report/ in the first DIR"
        ),
    ] = None,
) -> None:
    """Write figures and one HTML page; runs that differ only in their seed become one curve."""
    from flexfl.report import write_report

    folder = out or directories[0] / "report"
    page = write_report(directories, folder)
    typer.echo(f"report: {page}")
