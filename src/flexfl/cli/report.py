"""flexfl report: write figures and an HTML page from run directories."""

from __future__ import annotations

import sys
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
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME",
            help="Your name for a curve; give one for each group of runs that differ only in their seed, "
            "in the order in which the groups' first runs are given.",
            show_default="the settings in which groups differ",
        ),
    ] = None,
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="AXIS",
            help="x axis of loss and accuracy: iteration, seconds (by the run's clock), training-seconds (on "
            "the machine), bytes, uplink-bytes, downlink-bytes, compute-cost, uplink-cost, downlink-cost, "
            "joules, gCO2, euros, dollars, or cost, each the total so far over all clients; a broadcast "
            "counts once. cost adds computing, uplink and downlink: use it if they have one unit.",
        ),
    ] = "iteration",
    formats: Annotated[
        str, typer.Option("--format", metavar="LIST", help="Formats of the figures: png, svg, pdf.")
    ] = "png",
    target: Annotated[
        list[float] | None,
        typer.Option(
            "--target",
            metavar="ACCURACY",
            help="Show what each curve has used until it first reached this test accuracy: --target 0.8; "
            "may be repeated.",
        ),
    ] = None,
) -> None:
    """Write figures and one HTML page; runs that differ only in their seed become one curve."""
    from flexfl.report import check_options, reached, read_runs, write_report

    kinds = [name.strip() for name in formats.split(",")]
    check_options(x=x, formats=kinds, targets=target or ())
    folder = out or directories[0] / "report"
    runs = read_runs(directories)
    page = write_report(runs, folder, labels=label, x=x, formats=kinds, targets=target or ())
    if target:
        from rich.console import Console

        from flexfl.cli.tables import show_resources

        console = Console(file=sys.stdout, highlight=False, markup=False)
        show_resources(console, reached(runs, target, labels=label))
    typer.echo(f"report: {page}")
