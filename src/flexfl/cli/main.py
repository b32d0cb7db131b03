"""The command `flexfl`; commands import what they need when they run, so that --help is fast."""

from __future__ import annotations

import sys

import typer

from flexfl import __version__
from flexfl.cli import (
    as_command,
    bench,
    compare,
    data,
    deploy,
    export,
    frontier,
    paper,
    plan,
    report,
    run,
    sweep,
)
from flexfl.errors import FlexFLError

app = typer.Typer(
    name="flexfl",
    help="Federated learning that keeps to a budget for computing, uplink and downlink.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("plan")(plan.plan)
app.command("frontier")(frontier.frontier)
app.command("compare")(compare.compare)
app.command("paper")(paper.paper)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flexfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; print a FlexFLError, or what to install, without a traceback."""
    try:
        try:
            app()
        except ModuleNotFoundError as error:
            from flexfl.extras import needed_for  # only then: a command that runs does not call it

            with needed_for("this command"):
                raise error
    except FlexFLError as error:
        typer.echo(f"flexfl: {as_command(error)}", err=True)
        sys.exit(2)
