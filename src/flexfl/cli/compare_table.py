"""A comparison in the terminal: a row for each method, what a target takes, and what was tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from flexfl.cli.tables import show_resources
from flexfl.parameters import KNOBS
from flexfl.report.compare_tables import results_table

if TYPE_CHECKING:
    from flexfl.report.compare import Comparison

_SHOWN = ("final accuracy", "averaged model", "area, uplink cost", *KNOBS, "worst client")


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print the main columns of the table, then what each target has taken, then the settings chosen."""
    whole = results_table(comparison)
    seeds = sorted({row[1] for row in whole.rows})
    title = f"{comparison.name}: {'–'.join(seeds)} seed{'' if seeds == ['1'] else 's'}; spent / budget"
    console.print(title, style="bold", soft_wrap=True)
    places = [place for place, head in enumerate(whole.heads) if head in _SHOWN]
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    for place in places:
        table.add_column(whole.heads[place].replace(", uplink cost", ""), justify="right", overflow="fold")
    for one, row in zip(comparison.contenders, whole.rows, strict=True):
        table.add_row(one.name, *(row[place] for place in places))
    console.print(table)
    show_resources(console, [row for rows in comparison.reached.values() for row in rows])
    for one in comparison.contenders:
        if one.tried:
            console.print(f"{one.name}: {one.settings}, best of {len(one.tried)}", soft_wrap=True)
    if comparison.missing:
        console.print(f"without a finished run: {', '.join(comparison.missing)}", soft_wrap=True)
