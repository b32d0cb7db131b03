"""flexfl data: list, fetch and verify datasets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexfl.cli import completion

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.data.catalogue import Dataset
    from flexfl.data.store import Stored
    from flexfl.spec.schema import Spec

app = typer.Typer(help="Datasets: list them, fetch them, verify them.", no_args_is_help=True)

BROKEN = 2
MINI_SAMPLES = (6000, 1000)
"""Training and test samples of the bundled dataset; a test compares them with the file."""


@app.command("list")
def list_() -> None:
    """List the datasets, and which of them are stored on this machine."""
    from rich.table import Table

    from flexfl.data import store
    from flexfl.data.catalogue import CATALOGUE

    table = Table()
    for heading in ("dataset", "description", "samples", "licence", "stored"):
        table.add_column(heading, overflow="fold")
    mini = f"{MINI_SAMPLES[0]:,} + {MINI_SAMPLES[1]:,}"
    table.add_row("fashion-mini", "a subset of Fashion-MNIST", mini, "MIT", "bundled with flexfl")
    for entry in CATALOGUE.values():
        stored = store.find(entry)
        size = "no" if stored is None else f"{stored.bytes / 1e6:.0f} MB, from {stored.source}"
        table.add_row(entry.name, entry.title, _samples(entry), entry.licence, size)
    console = _console()
    console.print(table)
    console.print(f"in {store.data_folder()}", soft_wrap=True)


@app.command("fetch")
def fetch(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="fashion-mnist or cifar10.", autocompletion=completion.datasets),
    ],
    given: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", help="Take it from this folder or archive instead of a download."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Fetch it even if it is stored already.")] = False,
) -> None:
    """Download a dataset from the first source that works."""
    from flexfl.data import store
    from flexfl.data.fetch import dataset

    entry = dataset(name)
    console = _console()
    if given is None and not again and (found := store.find(entry)) is not None:
        console.print(f"{_description(found)} already", soft_wrap=True)
        return
    stored = fetch_with_progress(console, entry, given=given, again=again)
    console.print(_description(stored), soft_wrap=True)


@app.command("verify")
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…", show_default="all that are stored", autocompletion=completion.datasets
        ),
    ] = None,
) -> None:
    """Verify the checksums of stored datasets."""
    from flexfl.data import store
    from flexfl.data.catalogue import CATALOGUE
    from flexfl.data.fetch import dataset

    broken = False
    for entry in [dataset(name) for name in names or CATALOGUE]:
        faults = store.faults(entry)
        if faults is None:
            typer.echo(f"{entry.name}: not stored; fetch it with: flexfl data fetch {entry.name}")
            broken |= bool(names)
            continue
        typer.echo(f"{entry.name}: {'; '.join(faults) or 'intact'}")
        if faults:
            typer.echo(f"  repair it with: flexfl data fetch {entry.name} --again")
        broken |= bool(faults)
    if broken:
        raise typer.Exit(BROKEN)


def fetch_with_progress(
    console: Console, entry: Dataset, *, given: Path | None = None, again: bool = False
) -> Stored:
    """Fetch a dataset with a progress bar; return at once if it is stored already.

    Args:
        console: Where to show the progress.
        entry: The dataset.
        given: A folder or an archive to take it from; by default it is downloaded.
        again: Fetch it even if it is stored already.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from flexfl.data.fetch import fetch as fetch_

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, int] = {}

        def on_bytes(name: str, have: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=have, total=total)  # type: ignore[arg-type]

        def on_source(title: str) -> None:
            bar.console.print(f"{entry.name}: trying {title}", soft_wrap=True)

        return fetch_(entry, given=given, again=again, on_source=on_source, on_bytes=on_bytes)


def ensure_datasets(console: Console, specs: Iterable[Spec]) -> None:
    """Fetch the datasets that these specs need and that are not stored yet."""
    from flexfl.data import store
    from flexfl.data.catalogue import CATALOGUE

    names = dict.fromkeys(spec.data.name for spec in specs if spec.data.path is None)
    for entry in (CATALOGUE[name] for name in names if name in CATALOGUE):
        if store.find(entry) is None:
            console.print(_description(fetch_with_progress(console, entry)), soft_wrap=True)


def _console() -> Console:
    """Return a console without markup, so that brackets and colons in file names are printed as they are."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def _description(stored: Stored) -> str:
    return (
        f"{stored.dataset.name}: {_samples(stored.dataset)} samples in {stored.folder}, from {stored.source}"
    )


def _samples(entry: Dataset) -> str:
    return f"{entry.shapes['train_x'][0]:,} + {entry.shapes['test_x'][0]:,}"
