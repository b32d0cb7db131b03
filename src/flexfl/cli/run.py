"""flexfl run: train from a spec, resume a run, or run many seeds and specs in parallel."""

from __future__ import annotations

import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli import INTERRUPTED, completion
from flexfl.errors import Fault, FlexFLWarning, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.experiments import Cell
    from flexfl.sim.run import Result
    from flexfl.spec.schema import Spec


def run(
    spec: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC…",
            help="quickstart, fashion, cifar10, or a TOML file.",
            autocompletion=completion.specs,
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: --set train.iterations=500"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory.", show_default="runs/SPEC")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N,N-N", help="A run for each of these seeds: 1-5 or 1,2,7")
    ] = "",
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="How many runs at a time; they share the cores.")
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on standard output, and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a model under budgets; the results go to a run directory."""
    import sys

    from rich.console import Console

    from flexfl.cli.run_many import run_many
    from flexfl.spec.load import load_spec, seeds_of

    numbers = seeds_of(seeds, "--seeds") if seeds else ()
    resolved = {name: load_spec(name, set_ or []) for name in spec}
    console = Console(file=sys.stderr if as_json else sys.stdout, quiet=quiet, highlight=False, markup=False)
    command = ["flexfl", "run", *spec, *(word for entry in set_ or [] for word in ("--set", entry))]
    if len(resolved) == 1 and not numbers:
        directory = out or _default_directory(spec[0], resume)
        command += ["--out", str(directory), "--resume"]
        _run_one(console, resolved[spec[0]], directory, resume, command, as_json=as_json, quiet=quiet)
        return
    base = out or Path("runs")
    command += [*(("--seeds", seeds) if seeds else ()), "--jobs", str(jobs), "--out", str(base), "--resume"]
    cells = _cells(resolved, numbers, set_ or [], base)
    run_many(console, cells, command, jobs=jobs, resume=resume, as_json=as_json, table=not quiet)


def _run_one(
    console: Console,
    spec: Spec,
    directory: Path,
    resume: bool,
    resume_command: list[str],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run one spec in this process, with a progress bar."""
    from flexfl.cli.show import ProgressLine, show_result
    from flexfl.data.catalogue import CATALOGUE

    if spec.data.name in CATALOGUE:
        from flexfl.cli.data import ensure_datasets

        ensure_datasets(console, [spec])
    if resume and not directory.exists():
        typer.echo(f"flexfl: {directory} holds no run yet; starting one", err=True)
    # Torch takes a second to import: faults of the spec are reported before.
    with console.status("loading torch and the data"):
        from flexfl.sim.run import RunInterruptedError, simulate
    try:
        with ProgressLine(console, spec.train.iterations) as line, warnings.catch_warnings():
            warnings.simplefilter("ignore", FlexFLWarning)  # the line shows the run's notes
            result: Result = simulate(spec, out=directory, resume=resume, observers=[line])
    except RunInterruptedError as stopped:
        typer.echo(f"flexfl: {stopped}; resume with: {shlex.join(resume_command)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(result.summary))
    elif not quiet:
        show_result(console, result.summary, directory)


def _cells(specs: dict[str, Spec], seeds: tuple[int, ...], settings: list[str], base: Path) -> list[Cell]:
    """Return a cell for each spec and seed, in a folder named after them."""
    from flexfl.experiments import Cell
    from flexfl.spec.load import load_spec

    cells = []
    for name, spec in specs.items():
        stem = Path(name).stem
        if [Path(other).stem for other in specs].count(stem) > 1:
            rule = "must have different file names, since they name the run directories"
            raise InputError([Fault("SPEC", rule, name, "rename one of the files")], "the command")
        for seed in seeds or [spec.train.seed]:
            seeded = load_spec(name, [*settings, f"train.seed={seed}"])
            cells.append(Cell(f"{stem}, seed {seed}", seeded, base / stem / f"seed-{seed}"))
    return cells


def _default_directory(spec: str, resume: bool) -> Path:
    """Return runs/NAME, or the first unused of runs/NAME-2, …; with --resume the newest run."""
    base = path = Path("runs") / Path(spec).stem
    number, taken = 1, []
    while path.exists():
        taken.append(path)
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    runs = [found for found in taken if (found / "spec.toml").exists()]
    return runs[-1] if resume and runs else path
