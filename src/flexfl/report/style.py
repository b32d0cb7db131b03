"""How groups are told apart, in figures and on the page alike."""

from __future__ import annotations

from typing import Literal, NamedTuple

# Okabe and Ito's palette, safe for colour-blind readers, without black and without yellow,
# which is hard to see on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

BUDGET_COLOUR = "#7a7a7a"


class Dash(NamedTuple):
    """One pattern, as matplotlib, plotly and CSS borders name it."""

    matplotlib: Literal["solid", "dotted", "dashdot"]
    plotly: str
    css: str


# Plain dashes are left to the budget.
_DASHES = (
    Dash("solid", "solid", "solid"),
    Dash("dotted", "dot", "dotted"),
    Dash("dashdot", "dashdot", "double"),  # CSS has no dash-dot
)


class Line(NamedTuple):
    """The look of one group."""

    colour: str
    dash: Dash


def line_of(group: int) -> Line:
    """Six colours, then the same colours dotted, then dash-dotted."""
    return Line(_COLOURS[group % len(_COLOURS)], _DASHES[group // len(_COLOURS) % len(_DASHES)])


def budget_label(budgets: tuple[float, ...], budget: float) -> str:
    """Which budget is which only matters where there are several."""
    return "budget" if len(budgets) == 1 else f"budget {budget:g}"
