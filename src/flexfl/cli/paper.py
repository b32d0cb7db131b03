"""flexfl paper: reproduce the figures of Section V with real data."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli.sweep import JOBS, Place, cores

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.report.evidence import Evidence


class FigureName(StrEnum):
    fig1 = "fig1"
    fig2 = "fig2"
    fig3 = "fig3"
    all = "all"


class DatasetName(StrEnum):
    fashion = "fashion"
    cifar10 = "cifar10"
    mini = "mini"


def paper(
    figure: Annotated[FigureName, typer.Argument(metavar="FIGURE", help="fig1, fig2, fig3 or all.")],
    dataset: Annotated[
        DatasetName, typer.Option("--dataset", help="Fashion-MNIST, CIFAR-10, or the bundled fashion-mini.")
    ] = DatasetName.fashion,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Seeds 1 … N.", show_default="the paper's 20 or 5")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Iterations.", show_default="the paper's 10,000")
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            "--evaluate-every", min=1, help="Iterations between evaluations.", show_default="the paper's 50"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the runs.", show_default="runs/paper/DATASET"),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", help="Folder of the figures.", show_default="OUT/figures"),
    ] = None,
    jobs: Annotated[int | None, JOBS] = None,
    on: Annotated[
        Place, typer.Option("--on", help="Processes of this machine, or a Ray cluster.")
    ] = Place.here,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Reproduce a figure of the paper: do the missing runs, then draw it with its table."""
    from rich.console import Console

    from flexfl.cli.run_many import run_many
    from flexfl.experiments.finished import refuse_other_specs
    from flexfl.experiments.paper import FIGURES, SETUPS, cells_of, evidence_of

    setup = SETUPS[dataset.value]
    figures = list(FIGURES.values()) if figure is FigureName.all else [FIGURES[figure.value]]
    base = out or Path("runs/paper") / dataset.value
    cells = cells_of(
        figures,
        setup,
        base,
        seeds=seeds or setup.seeds,
        iterations=iterations,
        evaluate_every=evaluate_every,
    )
    refuse_other_specs(cells)
    console = Console(file=sys.stdout, quiet=quiet, highlight=False, markup=False)
    resume_command = ["flexfl", *sys.argv[1:]]
    run_many(console, cells, resume_command, jobs=jobs or cores(), on=on.value, table=False)
    evidence = [evidence_of(entry, setup, cells) for entry in figures]
    _draw(console, evidence, f"FlexFL on {setup.title}", results or base / "figures")


def _draw(console: Console, figures: list[Evidence], title: str, out: Path) -> None:
    """Write the figures and print their tables."""
    from flexfl.cli.show import show_evidence
    from flexfl.report.evidence_page import write_evidence

    with console.status("drawing"):
        page = write_evidence(figures, title, out)
    for figure in figures:
        show_evidence(console, figure)
    console.print(f"figures        {page.parent}", soft_wrap=True)
    console.print(f"open           {page}", soft_wrap=True)
