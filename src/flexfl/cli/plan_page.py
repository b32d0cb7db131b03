"""The page of `flexfl plan`: what the numbers are, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from flexfl.parameters import KNOBS
from flexfl.report.bounds import TERMS
from flexfl.units import show

_DAY = 86400.0
_CONSTANTS = {
    "smoothness": ("L", "how fast gradients change"),
    "variance": ("σ²", "noise of a minibatch"),
    "divergence": ("ε²", "how far clients differ"),
    "loss": ("f(x₀)", "loss at the start"),
}


def show_plan(console: Console, plan: Mapping[str, Any]) -> None:
    """Print a plan, as `flexfl.experiments.plan.Plan.plain` returns it."""
    console.print(
        f"{plan['name']}: {plan['clients']} clients, {plan['parameters']:,} parameters, "
        f"{plan['iterations']:,} iterations",
        style="bold",
        soft_wrap=True,
    )
    for note in plan["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
    _spending(console, plan)
    _computing(console, plan)
    _budgets(console, plan)
    _constants(console, plan)
    _convergence(console, plan)


def _number(value: float) -> str:
    """Return a number for people: 0.00064, 12.3, 28,284."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _percent(share: float) -> str:
    """Return a share in percent.

    >>> _percent(0.0814), _percent(13.5), _percent(1e-9), _percent(0.0)
    ('8.1 %', '1,350 %', '< 0.01 %', '0 %')
    """
    if 0 < share < 1e-4:
        return "< 0.01 %"
    return f"{100 * share:,.0f} %" if share >= 1 else f"{100 * share:.2g} %"


def _table(console: Console, title: str, *headings: str) -> Table:
    """Print a title, which may be wider than the table, and return the table that is to stand below it."""
    console.print(title, style="bold")
    table = Table()
    table.add_column(headings[0])
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    return table


def _spending(console: Console, plan: Mapping[str, Any]) -> None:
    """Print the forecast of costs and of the pace."""
    table = _table(console, "forecast", "", "an iteration", "budget", "of budget", "whole run")
    for knob in KNOBS:
        found = plan["spending"][knob]
        each, budget, unit = found["each"], found["budget"], found["unit"]
        if each is None:
            table.add_row(knob, "–", "no limit" if budget is None else show(budget, unit), "–", "–")
            continue
        share = "no limit" if budget is None else f"{each / budget:.0%}"
        limit = "–" if budget is None else show(budget, unit)
        table.add_row(knob, show(each, unit), limit, share, show(found["total"], unit))
    console.print(table)
    pace = plan["pace"]
    if pace["messages"] is not None:
        console.print(
            f"messages       {pace['messages']:.2g} of a client in an iteration, "
            f"{show(pace['bytes_up'], 'byte')} on average; {show(pace['bytes_down'], 'byte')} down",
            soft_wrap=True,
        )
    if pace["seconds"] is not None:
        _daily(console, plan, _DAY / pace["seconds"])
    if pace["simulated"] is not None:
        rate, T = pace["simulated"], plan["iterations"]
        console.print(
            f"simulation     {rate:.3g} iterations a second on this machine: "
            f"{show(T / rate, 'second')} for the run",
            soft_wrap=True,
        )


def _daily(console: Console, plan: Mapping[str, Any], per_day: float) -> None:
    pace = plan["pace"]
    text = (
        f"{per_day:,.0f} iterations a day, {show(plan['iterations'] / per_day * _DAY, 'second')} for the run"
    )
    if pace["messages"] is not None:
        up, down = (show(pace[name] * per_day, "byte") for name in ("bytes_up", "bytes_down"))
        text += f"; {pace['messages'] * per_day:,.0f} messages and {up} of a client a day, {down} down"
    console.print(f"real pace      {text}", soft_wrap=True)


def _computing(console: Console, plan: Mapping[str, Any]) -> None:
    """Print P2.1 against the best plan, and the learning rate."""
    found = plan["computing"]
    console.print()
    console.print("computing", style="bold")
    console.print(
        f"A client computes with probability {found['prob']:.2f} on average; 1/q is {found['reached']:.3g} "
        f"on average, and p = {found['worst']:.3g} in the worst iteration. The best plan that knows all "
        f"costs has {found['optimum']:.3g} (OPT_q)"
        + ("." if found["bound"] is None else f"; Theorem 3 allows {found['bound']:.3g}."),
    )
    rate, limit = plan["learning_rate"], plan["largest_learning_rate"]
    if limit is None or rate <= limit:
        console.print(f"The learning rate {rate:g} is within Theorem 1's limit 1/(4Lp).")
        return
    console.print(
        f"Theorem 1 holds up to a learning rate of 1/(4Lp) = {limit:.2g}; {rate:g} is "
        f"{_number(rate / limit)} times that. The limit is for the worst direction and iteration, and larger "
        "rates usually work; but nothing is promised for them. If the loss does not fall, lower "
        "train.learning_rate."
    )


def _budgets(console: Console, plan: Mapping[str, Any]) -> None:
    """Print Theorem 2, what V does, and the bound of the price."""
    violations, price = plan["violations"], plan["price"]
    if not violations and not price:
        return
    console.print()
    by_queue = ("V/10", "V", "10·V", "W for 1 %") if violations else ()
    title = f"above the budget after {plan['iterations']:,} iterations, at most"
    table = _table(console, title, "", *by_queue, "log price")
    for knob in KNOBS:
        if knob not in violations and knob not in price:
            continue
        cells = ["–"] * len(by_queue)
        if (found := violations.get(knob)) is not None:
            cells = [_percent(bound / found["budget"]) for _, bound in found["by_tradeoff"]]
            cells.append(_number(found["initial_queue_needed"]))
        table.add_row(knob, *cells, _percent(price[knob]) if knob in price else "–")
    console.print(table)
    for knob, found in violations.items():
        console.print(
            f"{knob:14s} V = {found['tradeoff']:g}, W = {found['initial_queue']:g}; seen: "
            f"D = {found['largest']:.3g}, costs up to {found['largest_cost']:.3g}",
            soft_wrap=True,
        )
    if violations:
        console.print(
            "Theorem 2 is a worst case: runs usually end far closer to their budgets. A smaller V comes to "
            "the budget sooner and learns more slowly. 'W for 1 %' is the initial queue with which the "
            "theorem allows a hundredth; a W that large hardly learns for a while. A log price needs none.",
            style="dim",
        )


def _constants(console: Console, plan: Mapping[str, Any]) -> None:
    found = plan["estimates"]
    console.print()
    table = _table(console, "constants, estimated", "", "mean", "90 % interval", "largest")
    for name, (letter, words) in _CONSTANTS.items():
        one = found[name]
        span = f"{one['low']:.3g} – {one['high']:.3g}"
        table.add_row(f"{letter}  {words}", f"{one['mean']:.3g}", span, f"{one['largest']:.3g}")
    console.print(table)
    console.print(
        f"Over {found['clients']} of {plan['clients']} clients, at {found['places']} places of a short "
        "training. Bounds for every client are made with the largest.",
        style="dim",
    )


def _convergence(console: Console, plan: Mapping[str, Any]) -> None:
    terms = plan["convergence"]
    console.print()
    table = _table(console, "Theorem 1: average of ‖∇f‖², at most", "", "", "share")
    known = {name: value for name, value in terms.items() if name != "total" and value is not None}
    total = sum(known.values())
    for name, words in TERMS.items():
        if (value := terms[name]) is None:
            table.add_row(words, "needs a trial", "–")
        else:
            table.add_row(words, _number(value), _percent(value / total if total else 0.0))
    table.add_row("their sum", _number(total), "" if len(known) == len(TERMS) else "without the rest")
    console.print(table)
    limit = plan["largest_learning_rate"]
    if limit is not None and plan["learning_rate"] > limit:
        console.print("With a learning rate above 1/(4Lp) the terms compare, but their sum is no bound.")
    if plan["gradients"]:
        measured = [value for _, value in plan["gradients"]]
        console.print(
            f"Measured in the trial: {sum(measured) / len(measured):.3g} on average. The sum is far above "
            "what happens; its largest term tells what to spend more on.",
            style="dim",
        )
