"""A map of a partition as plain plotly data: bars above, a heat map below."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.report.partitions import Map
from flexfl.report.style import BAR_COLOUR, MAP_COLOURS, NO_SAMPLES

_HEAT, _BARS = (0.0, 0.74), (0.81, 1.0)  # shares of the height
# So many columns are wide enough, on a narrow screen too, for a gap that shows where one client ends.
_MOST_APART = 40


def partition_chart(drawn: Map) -> dict[str, Any]:
    """`data` and `layout` for Plotly.newPlot; colours of text and grid are the page's to set."""
    clients = int(drawn.columns[-1])
    client_axis = {"title": {"text": "client"}, "range": [-0.5, clients - 0.5]}
    size_axis = {"title": {"text": drawn.unit.replace(" per", "<br>per")}, "rangemode": "tozero"}
    layout: dict[str, Any] = {"xaxis": client_axis, "yaxis": size_axis, "showlegend": False, "bargap": 0}
    bars = _bars(drawn)
    if drawn.counts is None or drawn.rows is None:
        return {"data": [bars], "layout": layout}
    classes = int(drawn.rows[-1])
    layout["yaxis"] = {
        "title": {"text": "class"},
        "range": [-0.5, classes - 0.5],
        "domain": _HEAT,
        "showgrid": False,
        "zeroline": False,
        # Whole numbers only, and not more than there is room for.
        "dtick": -(-classes // 10),
    }
    layout["yaxis2"] = size_axis | {"domain": _BARS, "nticks": 3}
    bars["yaxis"] = "y2"
    return {"data": [bars, _heat(drawn, drawn.rows, drawn.counts)], "layout": layout}


def _bars(drawn: Map) -> dict[str, Any]:
    return {
        "type": "bar",
        "x": _numbers((drawn.columns[:-1] + drawn.columns[1:] - 1) / 2),
        "y": _numbers(drawn.sizes),
        "width": (np.diff(drawn.columns) * (0.9 if len(drawn.sizes) <= _MOST_APART else 1)).tolist(),
        "marker": {"color": BAR_COLOUR, "line": {"width": 0}},
        "hovertemplate": f"{_who(drawn)}<br>%{{y:,.4~g}} {drawn.unit}<extra></extra>",
    }


def _heat(drawn: Map, rows: IntArray, counts: FloatArray) -> dict[str, Any]:
    tallest = float(counts.max())
    # Only nothing is grey: the step to the first colour lies below the least there is.
    none = min(0.001, float(counts[counts > 0].min()) / (2 * tallest))
    steps = np.linspace(none, 1, len(MAP_COLOURS))
    scale = [(0.0, NO_SAMPLES), (none, NO_SAMPLES), *zip(steps.tolist(), MAP_COLOURS, strict=True)]
    what = "class %{y:.0f}" if len(rows) > rows[-1] else "classes near %{y:.0f}"
    return {
        "type": "heatmap",
        "x": (drawn.columns - 0.5).tolist(),
        "y": (rows - 0.5).tolist(),
        "z": [_numbers(row) for row in counts],
        "zmin": 0,
        "zmax": tallest,
        "colorscale": scale,
        "xgap": 0.6 if len(drawn.sizes) <= _MOST_APART else 0,
        "colorbar": {
            "title": {"text": drawn.unit, "side": "right"},
            "len": _HEAT[1],
            "lenmode": "fraction",
            "y": 0,
            "yanchor": "bottom",
            "thickness": 14,
            "outlinewidth": 0,
        },
        "hovertemplate": f"{_who(drawn)}<br>{what}<br>%{{z:,.4~g}} {drawn.unit}<extra></extra>",
    }


def _who(drawn: Map) -> str:
    return "client %{x:.0f}" if drawn.unit == "samples" else "clients near %{x:.0f}"


def _numbers(values: FloatArray) -> list[float]:
    """Whole numbers as such: a map of a thousand clients has many."""
    return [int(value) if value == int(value) else float(f"{value:.4g}") for value in values]
