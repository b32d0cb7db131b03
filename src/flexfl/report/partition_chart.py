"""Charts of partitions as plain plotly data: bars above, a heat map below."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexfl.arrays import FloatArray, IntArray
from flexfl.report.partitions import PartitionMap
from flexfl.report.style import BAR_COLOUR, MAP_COLOURS, NO_SAMPLES

_HEAT, _BARS = (0.0, 0.74), (0.81, 1.0)  # shares of the height
# Up to this many columns, even on a narrow screen, a gap separates neighbouring clients.
_MOST_WITH_GAPS = 40


def partition_chart(map_: PartitionMap) -> dict[str, Any]:
    """Return `data` and `layout` for Plotly.newPlot; the page sets colours of text and grid."""
    clients = int(map_.columns[-1])
    client_axis = {"title": {"text": "client"}, "range": [-0.5, clients - 0.5]}
    size_axis = {"title": {"text": map_.unit.replace(" per", "<br>per")}, "rangemode": "tozero"}
    layout: dict[str, Any] = {"xaxis": client_axis, "yaxis": size_axis, "showlegend": False, "bargap": 0}
    bars = _bars(map_)
    if map_.counts is None or map_.rows is None:
        return {"data": [bars], "layout": layout}
    classes = int(map_.rows[-1])
    layout["yaxis"] = {
        "title": {"text": "class"},
        "range": [-0.5, classes - 0.5],
        "domain": _HEAT,
        "showgrid": False,
        "zeroline": False,
        # Whole numbers only, and at most ten.
        "dtick": -(-classes // 10),
    }
    layout["yaxis2"] = size_axis | {"domain": _BARS, "nticks": 3}
    bars["yaxis"] = "y2"
    return {"data": [bars, _heat(map_, map_.rows, map_.counts)], "layout": layout}


def _bars(map_: PartitionMap) -> dict[str, Any]:
    return {
        "type": "bar",
        "x": _numbers((map_.columns[:-1] + map_.columns[1:] - 1) / 2),
        "y": _numbers(map_.sizes),
        "width": (np.diff(map_.columns) * (0.9 if len(map_.sizes) <= _MOST_WITH_GAPS else 1)).tolist(),
        "marker": {"color": BAR_COLOUR, "line": {"width": 0}},
        "hovertemplate": f"{_who(map_)}<br>%{{y:,.4~g}} {map_.unit}<extra></extra>",
    }


def _heat(map_: PartitionMap, rows: IntArray, counts: FloatArray) -> dict[str, Any]:
    tallest = float(counts.max())
    # Only zero is grey: the first colour starts below the smallest positive count.
    none = min(0.001, float(counts[counts > 0].min()) / (2 * tallest))
    steps = np.linspace(none, 1, len(MAP_COLOURS))
    scale = [(0.0, NO_SAMPLES), (none, NO_SAMPLES), *zip(steps.tolist(), MAP_COLOURS, strict=True)]
    what = "class %{y:.0f}" if len(rows) > rows[-1] else "classes near %{y:.0f}"
    return {
        "type": "heatmap",
        "x": (map_.columns - 0.5).tolist(),
        "y": (rows - 0.5).tolist(),
        "z": [_numbers(row) for row in counts],
        "zmin": 0,
        "zmax": tallest,
        "colorscale": scale,
        "xgap": 0.6 if len(map_.sizes) <= _MOST_WITH_GAPS else 0,
        "colorbar": {
            "title": {"text": map_.unit, "side": "right"},
            "len": _HEAT[1],
            "lenmode": "fraction",
            "y": 0,
            "yanchor": "bottom",
            "thickness": 14,
            "outlinewidth": 0,
        },
        "hovertemplate": f"{_who(map_)}<br>{what}<br>%{{z:,.4~g}} {map_.unit}<extra></extra>",
    }


def _who(map_: PartitionMap) -> str:
    return "client %{x:.0f}" if map_.unit == "samples" else "clients near %{x:.0f}"


def _numbers(values: FloatArray) -> list[float]:
    """Return values with four digits, whole ones as integers, to keep the page small."""
    return [int(value) if value == int(value) else float(f"{value:.4g}") for value in values]
