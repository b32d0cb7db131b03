"""flexfl frontier: accuracy against budgets over a grid with seeds, and the cheapest budget for a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli import completion
from flexfl.cli.studies import AsJson, On, Quiet, Settings, console_of, kinds_of, run_all, show_page
from flexfl.cli.sweep import JOBS, Place, cores

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.experiments.frontier import Grid


Vary = Annotated[
    list[str],
    typer.Option(
        "--vary",
        metavar="KEY=VALUE,VALUE",
        help="A budget, or another setting that is a number, and its values: --vary budget.uplink=0.005,0.01 "
        'or --vary "budget.uplink=20 MB,40 MB"; up to three times, for every combination.',
        autocompletion=completion.budgets,
    ),
]
Targets = Annotated[
    list[float] | None,
    typer.Option(
        "--target",
        metavar="ACCURACY",
        help="Find the cheapest budget that reaches this test accuracy: --target 0.8; may be repeated.",
    ),
]


def frontier(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="quickstart, fashion, cifar10, or a TOML file.",
            autocompletion=completion.specs,
        ),
    ],
    vary: Vary,
    seeds: Annotated[
        str,
        typer.Option(
            "--seeds", metavar="N,N-N", help="Seeds of every cell: 1-3 or 1,2,7", show_default="the spec's"
        ),
    ] = "",
    target: Targets = None,
    set_: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the runs.", show_default="runs/frontier/SPEC"),
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="LIST", help="Formats of the picture: png, svg, pdf.")
    ] = "png",
    jobs: Annotated[int | None, JOBS] = None,
    on: On = Place.here,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what accuracy a budget buys: run a grid of budgets × seeds, draw it, name the cheapest."""
    from flexfl.experiments.finished import refuse_other_specs
    from flexfl.experiments.frontier import load_grid

    kinds = kinds_of(formats)
    base = out or Path("runs/frontier") / Path(spec).stem
    grid = load_grid(spec, vary, base, seeds=seeds, overrides=set_ or (), targets=target or ())
    refuse_other_specs(grid.cells)
    console = console_of(as_json=as_json, quiet=quiet)
    failed = run_all(console, grid.cells, jobs=jobs or cores(), on=on.value)
    _show(console, grid, base / "frontier", kinds, as_json=as_json)
    if failed is not None:
        raise failed


def _show(console: Console, grid: Grid, out: Path, formats: list[str], *, as_json: bool) -> None:
    """Write the table, the picture and the page, and print the table."""
    from flexfl.cli.frontier_table import show_frontier
    from flexfl.report.frontier_page import write_frontier

    with console.status("drawing"):
        found = grid.frontier()
        page = write_frontier(found, out, formats)
    if as_json:
        typer.echo(json.dumps(found.plain()))
        return
    show_frontier(console, found)
    show_page(console, page)
