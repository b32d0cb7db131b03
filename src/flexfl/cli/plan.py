"""flexfl plan: what the theory says of a spec before it is run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.cli import completion
from flexfl.errors import Fault, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.spec.schema import Spec

PLAN_FILE, PICTURE, RUN_PICTURE = "plan.json", "plan.png", "bound.png"


def plan(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="quickstart, fashion, cifar10, a TOML file, or the folder of a run.",
            autocompletion=completion.specs,
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: --set budget.uplink=0.02"),
    ] = None,
    tried: Annotated[
        int,
        typer.Option(
            "--iterations-to-try", min=0, help="Iterations of a trial, which tells how large messages get."
        ),
    ] = 300,
    pace: Annotated[
        str,
        typer.Option(
            "--pace", metavar="TIME", help="How long an iteration takes between machines: '30 s', '5 min'."
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where plan.json and plan.png are written.",
            show_default="runs/SPEC-plan, or plan/ in the folder of a run",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON on standard output, and nothing else.")
    ] = False,
) -> None:
    """Tell before a run what it will cost, how well budgets are kept, and what V, W and η mean for it."""
    from rich.console import Console

    from flexfl.results.files import create_output_folder, write_text
    from flexfl.spec.load import load_spec

    seconds, directory = _seconds(pace), _run_directory(spec)
    resolved = load_spec(spec if directory is None else str(directory / "spec.toml"), set_ or [])
    name = Path(spec).stem if directory is None else directory.name
    folder = out or (Path("runs") / f"{name}-plan" if directory is None else directory / "plan")
    create_output_folder(folder, "--out")
    console = Console(file=sys.stderr if as_json else sys.stdout, highlight=False, markup=False)
    found = _made(console, resolved, name, tried, seconds)
    write_text(folder / PLAN_FILE, json.dumps(found, indent=2) + "\n")
    pictures = _draw(found, folder, directory)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _show(console, found, [*pictures, folder / PLAN_FILE])


def _show(console: Console, found: dict[str, Any], files: list[Path]) -> None:
    """Print the page, and which files were written."""
    from flexfl.cli.plan_page import show_plan

    show_plan(console, found)
    for file in files:
        label = "data" if file.name == PLAN_FILE else "picture"
        console.print(f"{label:14s} {file}", soft_wrap=True)


def _made(console: Console, spec: Spec, name: str, tried: int, seconds: float | None) -> dict[str, Any]:
    """Return the plan as plain data."""
    from flexfl.data.catalogue import CATALOGUE

    if spec.data.name in CATALOGUE:
        from flexfl.cli.data import ensure_datasets

        ensure_datasets(console, [spec])
    with console.status("loading torch and the data"):
        from flexfl.experiments.plan import make_plan
    with console.status("estimating constants, trying some iterations"):
        return make_plan(spec, name, iterations_to_try=tried, seconds_per_iteration=seconds).plain()


def _draw(found: dict[str, Any], folder: Path, directory: Path | None) -> list[Path]:
    """Write the pictures; of a run, the terms of Theorem 1 as it has recorded them, too."""
    from flexfl.report.bounds import write_plan_figure, write_run_figure
    from flexfl.results import Run

    pictures = [write_plan_figure(found, folder / PICTURE)]
    if directory is not None and len((run := Run(directory)).iterations["iteration"]):
        pictures.append(write_run_figure(run, found, folder / RUN_PICTURE, heaviest=found["heaviest"]))
    return pictures


def _run_directory(spec: str) -> Path | None:
    """Return the folder of a run, if that is what was named."""
    path = Path(spec)
    if not path.is_dir():
        return None
    if not (path / "spec.toml").is_file():
        rule, remedy = "must be a spec, or the folder of a run", "give the folder that holds spec.toml"
        raise InputError([Fault("SPEC", rule, spec, remedy)], "the command")
    return path


def _seconds(pace: str) -> float | None:
    """Return how long an iteration takes, in seconds."""
    from flexfl.units import convert

    if not pace:
        return None
    try:
        seconds = convert(pace, "second")
    except ValueError as error:
        remedy = "for example --pace '30 s'"
        raise InputError([Fault("--pace", str(error), pace, remedy)], "the command") from error
    if not seconds > 0:
        raise InputError([Fault("--pace", "must be > 0", pace, "for example '30 s'")], "the command")
    return seconds
