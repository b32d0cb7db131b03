"""A frontier in the terminal: a row for each cell, then the cheapest budget for each target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from flexfl.parameters import KNOBS
from flexfl.report.frontier import budget_axes, cheapest_text, smallest_text
from flexfl.units import show

if TYPE_CHECKING:
    from flexfl.report.frontier import Frontier
    from flexfl.report.frontier_cells import Point, Worst

_WIDE = 110
"""Characters of a terminal from which amounts are shown beside shares of the budget, and seeds."""


def show_frontier(console: Console, frontier: Frontier) -> None:
    """Print the cells with their accuracy and what they spent, and the cheapest budgets."""
    seeds = sorted({len(point.runs) for point in frontier.points})
    many = "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    title = f"{frontier.name}: final test accuracy, {many} seed{'' if seeds[-1] == 1 else 's'}; spent"
    console.print(f"{title} / budget; * on the Pareto front", style="bold")
    wide = console.width >= _WIDE
    table = Table(box=None, padding=(0, 1, 0, 0))
    for axis in frontier.axes:
        table.add_column(axis.name if axis.is_budget else axis.field, justify="right", overflow="fold")
    table.add_column("accuracy", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for knob in KNOBS:
        table.add_column(knob, justify="right", no_wrap=True)
    table.add_column("worst client", overflow="fold")
    for point, front in zip(frontier.points, frontier.front, strict=True):
        values = [axis.texts[place] for axis, place in zip(frontier.axes, point.index, strict=True)]
        marks = "*" * bool(front) + "!" * point.is_over
        costs = [_spent(point, knob, wide=wide) for knob in KNOBS]
        worst = "" if point.worst is None else _worst(point.worst, with_seed=wide and len(point.runs) > 1)
        table.add_row(*values, point.text, marks, *costs, worst)
    console.print(table)
    if frontier.over:
        console.print(f"{frontier.over}.")
    for target in frontier.targets:
        console.print(f"cheapest budget for test accuracy {target:g}", style="bold")
        if frontier.top is None or frontier.top.mean < target:
            console.print(Padding(cheapest_text(frontier, target, 0), (0, 0, 0, 2)))
            continue
        for number in budget_axes(frontier):
            cheapest = cheapest_text(frontier, target, number)
            console.print(Padding(f"{frontier.axes[number].field}: {cheapest}", (0, 0, 0, 2)))
            console.print(Padding(smallest_text(frontier, target, number), (0, 0, 0, 4)))


def _spent(point: Point, knob: str, *, wide: bool) -> str:
    spent, budget = point.spent(knob), point.budget(knob)
    if spent is None:
        return "–"
    amount = show(spent.mean, point.unit(knob))
    if not budget:
        return amount if wide else f"({amount})"
    part = f"{spent.mean / budget:.0%}"
    return f"{amount}, {part}" if wide else part


def _worst(worst: Worst, *, with_seed: bool) -> str:
    seed = f", seed {worst.seed}" if with_seed else ""
    return f"{worst.share:.0%} {worst.knob}, {worst.who}{seed}"
