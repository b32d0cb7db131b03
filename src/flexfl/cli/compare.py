"""flexfl compare: methods over seeds at equal budgets, in one table and one figure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli import FAILED, completion
from flexfl.cli.frontier import Settings
from flexfl.cli.sweep import JOBS, Place, cores

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.experiments.cell import Cell
    from flexfl.report.compare import Comparison

Methods = Annotated[
    list[str],
    typer.Argument(
        metavar="METHOD...",
        help="Methods or specs that ship (fedavg, paced, online, …), or TOML files with a method.",
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
    on: Annotated[
        Place, typer.Option("--on", help="Processes of this machine, or a Ray cluster (the extra ray).")
    ] = Place.here,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON on standard output, and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
) -> None:
    """Compare methods at equal budgets over seeds: accuracy for what is spent, what an accuracy takes."""
    from rich.console import Console

    from flexfl.errors import InputError
    from flexfl.experiments.compare import TARGETS, load_plan
    from flexfl.experiments.finished import refuse_other_specs
    from flexfl.report.figures import format_faults

    kinds = list(dict.fromkeys(name.strip() for name in formats.split(",")))
    if faults := format_faults(kinds):
        raise InputError(faults, "the command")
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
    console = Console(file=sys.stderr if as_json else sys.stdout, quiet=quiet, highlight=False, markup=False)
    refuse_other_specs(plan.tuning)
    failed = None
    if plan.tuning:
        failed = _run(console, "tuning", plan.tuning, jobs=jobs or cores(), on=on.value)
    chosen = plan.chosen()
    cells = plan.cells(chosen)
    refuse_other_specs(cells)
    failed = _run(console, "comparing", cells, jobs=jobs or cores(), on=on.value) if cells else failed
    comparison = plan.comparison(chosen)
    _show(console, comparison, results or folder / "compare", kinds, as_json=as_json)
    if failed is not None or comparison.missing:
        raise failed or typer.Exit(FAILED)


def _run(console: Console, stage: str, cells: list[Cell], *, jobs: int, on: str) -> typer.Exit | None:
    """Run what is not finished; return how to exit if a run failed, since the others are shown first."""
    from flexfl.cli.run_many import run_many

    console.print(f"{stage}: {len(cells)} runs")
    try:
        run_many(console, cells, ["flexfl", *sys.argv[1:]], jobs=jobs, on=on, table=False)
    except typer.Exit as stopped:
        if stopped.exit_code != FAILED:
            raise
        return stopped
    return None


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
    console.print(f"{'files':<14} {page.parent}", soft_wrap=True)
    console.print(f"{'open':<14} {page}", soft_wrap=True)
