"""flexfl compare: methods over seeds at equal budgets, in one table and one figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli import FAILED, completion
from flexfl.cli.studies import AsJson, On, Quiet, Settings, console_of, kinds_of, run_all, show_page
from flexfl.cli.sweep import JOBS, Place, cores

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.report.compare import Comparison

Methods = Annotated[
    list[str],
    typer.Argument(
        metavar="METHOD...",
        help="Methods or specs that ship (fedavg, kimad, online, …), or TOML files with a method.",
        autocompletion=completion.methods,
    ),
]
Tune = Annotated[
    list[str] | None,
    typer.Option(
        "--tune",
        metavar="[METHOD:]KEY=VALUE,VALUE",
        help="Choose a setting from these values, for all methods or for one: --tune "
        '"fedavg:control.participation=0.02,0.05"; may be repeated, for every combination.',
    ),
]
Targets = Annotated[
    list[float] | None,
    typer.Option(
        "--target",
        metavar="ACCURACY",
        help="Show what each method takes to reach this test accuracy; may be repeated.",
        show_default="0.8 and 0.85",
    ),
]


Base = Annotated[
    str,
    typer.Option(
        "--base",
        metavar="SPEC",
        help="The spec whose data, model, costs, budgets and iterations all methods share.",
        autocompletion=completion.specs,
    ),
]
Seeds = Annotated[
    str,
    typer.Option(
        "--seeds", metavar="N,N-N", help="Seeds of every method: 1-5 or 1,2,7", show_default="the base's"
    ),
]
TuneSeeds = Annotated[
    str,
    typer.Option(
        "--tune-seeds",
        metavar="N,N-N",
        help="Seeds of every combination that is tried.",
        show_default="the first",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder of the runs.", show_default="runs/compare/BASE"),
]
Results = Annotated[
    Path | None,
    typer.Option(
        "--results", metavar="DIR", help="Folder of the table and figure.", show_default="OUT/compare"
    ),
]

Formats = Annotated[
    str, typer.Option("--format", metavar="LIST", help="Formats of the figure: png, svg, pdf.")
]


def compare(
    methods: Methods,
    base: Base = "quickstart",
    seeds: Seeds = "",
    set_: Settings = None,
    tune: Tune = None,
    tune_seeds: TuneSeeds = "",
    no_tune: Annotated[
        bool, typer.Option("--no-tune", help="Run methods with the settings that they have; tune nothing.")
    ] = False,
    target: Targets = None,
    out: Out = None,
    results: Results = None,
    formats: Formats = "png,svg",
    jobs: Annotated[int | None, JOBS] = None,
    on: On = Place.here,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods at equal budgets over seeds: accuracy for what is spent, what an accuracy takes."""
    from flexfl.experiments.compare import TARGETS, load_plan
    from flexfl.experiments.finished import refuse_other_specs

    kinds = kinds_of(formats)
    folder = out or Path("runs/compare") / Path(base).stem
    plan = load_plan(
        methods,
        folder,
        base=base,
        seeds=seeds,
        tune_seeds=tune_seeds,
        overrides=set_ or (),
        tune=tune or (),
        tuned=not no_tune,
        targets=TARGETS if target is None else target,
    )
    console = console_of(as_json=as_json, quiet=quiet)
    refuse_other_specs(plan.tuning)
    failed = None
    if plan.tuning:
        console.print(f"tuning: {len(plan.tuning)} runs")
        failed = run_all(console, plan.tuning, jobs=jobs or cores(), on=on.value)
    chosen = plan.chosen()
    cells = plan.cells(chosen)
    refuse_other_specs(cells)
    if cells:
        console.print(f"comparing: {len(cells)} runs")
        failed = run_all(console, cells, jobs=jobs or cores(), on=on.value)
    comparison = plan.comparison(chosen)
    _show(console, comparison, results or folder / "compare", kinds, as_json=as_json)
    if failed is not None or comparison.missing:
        raise failed or typer.Exit(FAILED)


def _show(console: Console, comparison: Comparison, out: Path, formats: list[str], *, as_json: bool) -> None:
    """Write the tables, the figure and the page, and print the tables."""
    from flexfl.cli.compare_table import show_comparison
    from flexfl.report.compare_page import write_comparison

    with console.status("drawing"):
        page = write_comparison(comparison, out, formats)
    if as_json:
        typer.echo(json.dumps(comparison.plain()))
        return
    show_comparison(console, comparison)
    show_page(console, page)
