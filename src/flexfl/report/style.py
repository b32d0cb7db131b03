"""Colours and line styles of groups, the same in figures and on the page."""

from __future__ import annotations

from typing import Literal, NamedTuple

# Okabe and Ito's palette for colour-blind readers, without black, and without yellow, which is hard to
# see on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

BUDGET_COLOUR = "#7a7a7a"

# One hue from light to dark, readable without colour vision; on a fixed grey, so that it looks the same
# on a light and on a dark page.
MAP_COLOURS = ("#c6deed", "#5aa9d2", "#0072B2", "#06304b")
NO_SAMPLES = "#f1f1f1"
BAR_COLOUR = "#5f8fad"


class Dash(NamedTuple):
    """A dash pattern, by its names in matplotlib, plotly and CSS borders."""

    matplotlib: Literal["solid", "dotted", "dashdot", "dashed"]
    plotly: str
    css: str


# Plain dashes are reserved for budgets.
_DASHES = (
    Dash("solid", "solid", "solid"),
    Dash("dotted", "dot", "dotted"),
    Dash("dashdot", "dashdot", "double"),  # CSS has no dash-dot
)

AVERAGED = Dash("dashed", "dash", "dashed")
"""The averaged model's, in the colour of its group; panels that have it have no budgets."""


class LineStyle(NamedTuple):
    """The line style of one group."""

    colour: str
    dash: Dash


def line_style(group: int) -> LineStyle:
    """Return the style of a group's line: six colours, then the same dotted, then dash-dotted."""
    return LineStyle(_COLOURS[group % len(_COLOURS)], _DASHES[group // len(_COLOURS) % len(_DASHES)])
