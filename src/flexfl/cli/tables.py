"""Tables for the terminal: costs against budgets, and the resources that an accuracy has taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flexfl.results.accounts import share
from flexfl.results.forms import stored_form

if TYPE_CHECKING:
    from flexfl.report import Reached

_CLOSE = 0.02
# Relative tolerance for rounding errors when a cost is compared with its budget.
_ROUNDING = 1e-9

CHARGED_MEANING = (
    "charged: the expected cost λ(q), which the controller holds to the budget; spent: what was really spent"
)


def show_costs(
    console: Console,
    costs: Mapping[str, Mapping[str, Any]],
    joint: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    iterations: int = 1,
) -> None:
    """Print what was spent on each knob, and charged where that differs, against its budget.

    Args:
        console: Where to print.
        costs: `average_cost` of a summary.
        joint: `joint_budgets` of a summary.
        iterations: How many the run has had.
    """
    everything = [*costs.values(), *(joint or {}).values()]
    plain = all(stored_form(cost).is_plain for cost in everything)
    title = (
        "average cost of an iteration" if plain else "what was spent: by a client on average, by the server"
    )
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for heading in ("spent", "budget", "spent / budget"):
        table.add_column(heading, justify="right")
    worst = {
        knob: worst_text(cost["worst"], mention_charged=cost["agree"])
        for knob, cost in costs.items()
        if cost["worst"]
    }
    if worst or joint:
        table.add_column("worst client")
    for knob, cost in costs.items():
        table.add_row(
            knob,
            *_cells(cost, "spent", iterations, plain),
            *([worst.get(knob, "")] if worst or joint else []),
        )
        if not cost["agree"]:
            charged = worst_text(cost["worst"], "charged", mention_charged=False) if cost["worst"] else ""
            table.add_row(
                "  charged", *_cells(cost, "charged", iterations, plain), *([charged] if worst else [])
            )
    for name, cost in (joint or {}).items():
        most = cost["worst"]
        amounts = _cells(cost, "charged", iterations, plain)
        table.add_row(name, *amounts, f"{most['who']}: {share(most, 'charged'):.0%}")
    console.print(table)
    if any("charged" in text for text in worst.values()) or not all(cost["agree"] for cost in costs.values()):
        console.print(CHARGED_MEANING, style="dim")


def _cells(cost: Mapping[str, Any], by: str, iterations: int, plain: bool) -> tuple[str, str, str]:
    """Return what was spent, the budget, and the share; with what they are for unless all are `plain`."""
    spent, budget, form = cost[by], cost["budget"], stored_form(cost)
    limit = "–" if form.limit is None else f"{form.limit:.4g}" if plain else form.limit_text
    if spent is None:
        return "–", limit, "–"
    amount = form.amount(spent, iterations, budget)
    if form.limit is None:
        return amount if plain else amount + form.period, limit, "no limit"
    return amount, limit, f"{spent / budget:.0%}" if budget else "–"


def verdict(costs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return whether everyone has kept to its budgets, by what was really spent; "" if nobody has one.

    Args:
        costs: `average_cost` of a summary.

    >>> verdict({"downlink": {"spent": 2.04, "budget": 2.0, "worst": None}})
    'over budget: the server by 2% (downlink)'
    """
    found = []
    for knob, cost in costs.items():
        if cost["worst"]:
            found.append((share(cost["worst"]["spent"]), cost["worst"]["spent"]["who"], knob))
        elif cost["budget"] and cost["spent"] is not None:
            found.append(
                (cost["spent"] / cost["budget"], "the server" if knob == "downlink" else "all", knob)
            )
    over = [entry for entry in found if entry[0] > 1 + _ROUNDING]
    if over:
        listed = [f"{who} by {100 * (most - 1):.2g}% ({knob})" for most, who, knob in over]
        return f"over budget: {', '.join(listed)}"
    if not found:
        return ""
    most, who, knob = max(found)
    return f"budgets kept: nobody exceeded its own; {who} has spent most, {most:.1%} ({knob})"


def worst_text(
    worst: Mapping[str, Mapping[str, Any]], by: str = "spent", *, mention_charged: bool = True
) -> str:
    """Return who is worst off, with its share of the budget; and what it was charged where that differs.

    Args:
        worst: `worst` of a summary.
        by: spent or charged.
        mention_charged: Whether to add what it was charged.

    >>> entry = {"who": "client 3", "spent": 0.3, "charged": 0.25, "budget": 0.25}
    >>> worst_text({"spent": entry})
    'client 3: 120% (charged 100%)'
    """
    entry = worst[by]
    text = f"{entry['who']}: {share(entry, by):.0%}"
    if mention_charged and abs(share(entry) - share(entry, "charged")) > _CLOSE:
        text += f" (charged {share(entry, 'charged'):.0%})"
    return text


_HEADINGS = {
    "iteration": "iterations",
    "compute-cost": "computing",
    "uplink-cost": "uplink",
    "downlink-cost": "downlink",
    "uplink-bytes": "sent up",
    "downlink-bytes": "sent down",
    "seconds": "seconds",
}


def show_resources(console: Console, rows: Sequence[Reached]) -> None:
    """Print what each group has used until it first reached each target: means, a table for each target."""
    for target in dict.fromkeys(row.target for row in rows):
        wanted = [row for row in rows if row.target == target]
        console.print(f"until test accuracy {target:g}: mean over seeds, of all clients", style="bold")
        if any(row.reached for row in wanted):
            table = Table(box=None, padding=(0, 1, 0, 0))
            table.add_column("group", overflow="fold")
            for heading in _HEADINGS.values():
                table.add_column(heading, justify="right", no_wrap=True)
            for row in wanted:
                if row.reached:
                    table.add_row(row.label, *(row.mean_text(name) for name in _HEADINGS))
            console.print(table)
        for row in wanted:
            if row.remark:
                console.print(f"{row.label}: {row.remark}", soft_wrap=True)
