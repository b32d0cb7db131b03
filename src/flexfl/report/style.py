"""How groups are told apart, in figures and on the page alike."""

from __future__ import annotations

from typing import Literal, NamedTuple

# Okabe and Ito's palette, safe for colour-blind readers, without black and without yellow,
# which is hard to see on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

BUDGET_COLOUR = "#7a7a7a"

# One hue from light to dark, so that it can be read without seeing colours; on a grey of its own,
# so that it reads the same on a light and on a dark page.
MAP_COLOURS = ("#c6deed", "#5aa9d2", "#0072B2", "#06304b")
NO_SAMPLES = "#f1f1f1"
BAR_COLOUR = "#5f8fad"


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
