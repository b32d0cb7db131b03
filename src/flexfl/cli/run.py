"""flexfl run: train from a spec, or go on with a run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flexfl.sim.run import Result

INTERRUPTED = 130


def run(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="quickstart, fashion, cifar10, or a TOML file.")
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: --set train.iterations=500"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory. [default: runs/SPEC]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on standard output, and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a model under budgets; the result is a run directory."""
    import sys

    from rich.console import Console

    from flexfl.cli.show import ProgressLine, show_result
    from flexfl.spec.load import load_spec

    resolved = load_spec(spec, set_ or [])
    directory = out or _default_directory(spec, resume)
    if resume and not directory.exists():
        typer.echo(f"flexfl: {directory} holds no run yet; starting one", err=True)
    console = Console(file=sys.stderr if as_json else sys.stdout, quiet=quiet, highlight=False)

    # Torch takes a second to import: a fault in the spec should not wait for it.
    with console.status("loading torch and the data"):
        from flexfl.sim.run import RunInterruptedError, simulate

    try:
        with ProgressLine(console, resolved.train.iterations) as line:
            result: Result = simulate(resolved, out=directory, resume=resume, on_progress=line.update)
    except RunInterruptedError as stopped:
        settings = [word for entry in set_ or [] for word in ("--set", entry)]
        again = shlex.join(["flexfl", "run", spec, *settings, "--out", str(directory), "--resume"])
        typer.echo(f"flexfl: {stopped}; go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(result.summary))
    elif not quiet:
        show_result(console, result.summary, directory)


def _default_directory(spec: str, resume: bool) -> Path:
    """runs/NAME, or the next free number; with --resume the newest there is."""
    base = Path("runs") / Path(spec).stem
    taken = [base] if base.exists() else []
    number = 2
    while (path := base.with_name(f"{base.name}-{number}")).exists():
        taken.append(path)
        number += 1
    if not taken:
        return base
    return taken[-1] if resume else path
