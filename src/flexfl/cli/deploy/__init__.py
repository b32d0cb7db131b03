"""flexfl deploy: training across machines."""

import typer

from flexfl.cli.deploy.demo import demo
from flexfl.cli.deploy.kits import provision, rotate
from flexfl.cli.deploy.machines import client, server
from flexfl.cli.deploy.members import admit, remove
from flexfl.cli.deploy.runs import status, stop, submit

app = typer.Typer(help="Train across machines, or across processes on this one.", no_args_is_help=True)
for command in (demo, provision, rotate, server, client, submit, status, stop, remove, admit):
    app.command()(command)
