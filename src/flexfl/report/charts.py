"""The page's charts as plain plotly data: traces and layout; the tests validate them with plotly."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from flexfl.arrays import FloatArray
from flexfl.report.curves import Curve
from flexfl.report.panels import Panel
from flexfl.report.style import AVERAGED, BUDGET_COLOUR, line_style

_DECADES = 1.5


def chart(panel: Panel, prefix: str = "") -> dict[str, Any]:
    """Return `data` and `layout` for Plotly.newPlot; the page sets colours of text and grid."""
    bands = [_band(curve, prefix) for curve in panel.curves if curve.low is not None]
    lines = [_line(curve, panel, prefix) for curve in panel.curves]
    named = zip(panel.budgets, panel.budget_labels, strict=True)
    budgets = [_budget(panel, budget, label) for budget, label in named]
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _text(panel.x_label)}, "range": [0, panel.x_end]},
        "yaxis": {"title": {"text": _text(panel.y_label).replace("\n", "<br>")}, "range": panel.y_range},
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": -1,
    }
    if panel.is_log:
        low, high = (math.log10(end) for end in panel.y_range)
        layout["yaxis"] |= {"type": "log", "range": [low, high], "exponentformat": "power"}
        if high - low > _DECADES:  # label powers of ten only
            layout["yaxis"]["dtick"] = 1
    return {"data": bands + lines + budgets, "layout": layout}


def group_key(group: int, prefix: str = "") -> str:
    """Return the key shared by a group's button in the legend and its traces in all charts with `prefix`."""
    return f"{prefix}group-{group}"


def _line(curve: Curve, panel: Panel, prefix: str) -> dict[str, Any]:
    style, x_label = line_style(curve.group), panel.x_label
    dash = AVERAGED if curve.averaged else style.dash
    at = "iteration %{x}" if x_label == "iteration" else f"%{{x:.4~g}} {_text(x_label)}"
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers" if len(curve.x) == 1 else "lines",
        "name": _text(curve.label).replace(", ", ",<br>"),
        "legendgroup": group_key(curve.group, prefix),
        "x": _numbers(curve.x),
        "y": _numbers(curve.mean),
        "line": {"color": style.colour, "width": 1 if curve.thin else 2, "dash": dash.plotly},
        "marker": {"color": style.colour, "size": 8},
        "cliponaxis": len(curve.x) > 1,
        "hoverlabel": {"bordercolor": style.colour},
    }
    values, unit = "%{y:.4~g}", f" {_text(panel.unit)}" if panel.unit else ""
    if curve.low is not None and curve.high is not None:
        trace["customdata"] = [
            f"{low:.4g} to {high:.4g}" for low, high in zip(curve.low, curve.high, strict=True)
        ]
        values += " (%{customdata})" if not unit else f"{unit} (%{{customdata}}{unit})"
    else:
        values += unit
    origin = f"<br>from {_text(curve.origin)}" if curve.origin else ""
    trace["hovertemplate"] = f"<b>%{{fullData.name}}</b><br>{at}<br>{values}{origin}<extra></extra>"
    return trace


def _band(curve: Curve, prefix: str) -> dict[str, Any]:
    assert curve.low is not None
    assert curve.high is not None
    return {
        "type": "scatter",
        "mode": "lines",
        "legendgroup": group_key(curve.group, prefix),
        "x": _numbers(curve.x) + _numbers(curve.x[::-1]),
        "y": _numbers(curve.high) + _numbers(curve.low[::-1]),
        "fill": "toself",
        "fillcolor": line_style(curve.group).colour,
        "opacity": 0.2,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _budget(panel: Panel, budget: float, label: str) -> dict[str, Any]:
    """Return a budget line, as a trace: plotly ignores shapes when it fits an axis."""
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": "budget",
        "x": [0, panel.x_end],
        "y": [budget, budget],
        "text": ["", _text(label)],
        "textposition": "top left",
        "textfont": {"color": BUDGET_COLOUR},
        "line": {"color": BUDGET_COLOUR, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _text(text: str) -> str:
    """Escape a text, since plotly interprets some HTML."""
    return escape(text, quote=False)


def _numbers(values: FloatArray) -> list[float]:
    """Return values with six digits, more than a screen can show, to keep the page small."""
    return [float(f"{value:.6g}") for value in values]
