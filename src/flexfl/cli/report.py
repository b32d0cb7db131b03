"""flexfl report: figures and a page from run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories to draw.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Where to write.", show_default="report/ in the first DIR"
        ),
    ] = None,
) -> None:
    """Draw runs as figures and one page; runs that differ only in their seed become one curve."""
    from flexfl.report import write_report

    folder = out or directories[0] / "report"
    page = write_report(directories, folder)
    typer.echo(f"report: {page}")
