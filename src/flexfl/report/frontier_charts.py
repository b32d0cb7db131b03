"""The charts of a frontier's page as plain plotly data: traces and layout; the page sets their colours."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.report.frontier import Cheapest, Frontier
from flexfl.report.frontier_cells import Axis, Point
from flexfl.report.frontier_figure import TARGET_COLOUR
from flexfl.report.frontier_panels import (
    MapPanel,
    Series,
    SpentPanel,
    TargetLine,
    budget_curve,
    cell_text,
    edges,
    point_text,
)
from flexfl.report.style import BUDGET_COLOUR, MAP_COLOURS, line_style

_ACCURACY = "test accuracy at the end"


def map_chart(panel: MapPanel, frontier: Frontier) -> dict[str, Any]:
    """Return a map of accuracy over two settings, with the lines where targets are reached."""
    known = frontier.accuracy[np.isfinite(frontier.accuracy)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    steps = np.linspace(0.0, 1.0, len(MAP_COLOURS)).tolist()
    shape = len(panel.y_axis.values), len(panel.x_axis.values)
    points = [[panel.points[i, j] for i in range(shape[1])] for j in range(shape[0])]
    heat = {
        "type": "heatmap",
        "x": _numbers(edges(panel.x_axis.places)),
        "y": _numbers(edges(panel.y_axis.places)),
        "z": [[_number(value) for value in row] for row in panel.accuracy],
        "zmin": low,
        "zmax": max(high, low + 0.01),
        "colorscale": list(zip(steps, MAP_COLOURS, strict=True)),
        "text": [["<br>".join(cell_text(point)) for point in row] for row in points],
        "texttemplate": "%{text}",
        "customdata": [[_hover(point, frontier) for point in row] for row in points],
        "hovertemplate": "%{customdata}<extra></extra>",
        "xgap": 1.5,
        "ygap": 1.5,
        "colorbar": {"title": {"text": _ACCURACY, "side": "right"}, "thickness": 14, "outlinewidth": 0},
    }
    layout = {
        "xaxis": _axis(panel.x_axis, edges(panel.x_axis.places)),
        "yaxis": _axis(panel.y_axis, edges(panel.y_axis.places)) | {"showgrid": False, "zeroline": False},
        "showlegend": False,
        "hovermode": "closest",
    }
    return {"data": [heat, *(_target_trace(line) for line in panel.lines)], "layout": layout}


def curve_chart(frontier: Frontier) -> dict[str, Any]:
    """Return accuracy over the only setting, with a band of one deviation."""
    (axis,) = frontier.axes
    places, mean, deviation = budget_curve(frontier)
    points = [point for point in frontier.points if point.accuracy is not None]
    colour, known, ends = line_style(0).colour, np.isfinite(deviation), edges(axis.places)
    x, low, high = places[known], (mean - deviation)[known], (mean + deviation)[known]
    data: list[dict[str, Any]] = [_band(x, low, high, colour)] if known.any() else []
    if axis.is_budget:
        line = {"type": "scatter", "mode": "lines", "line": {"color": BUDGET_COLOUR, "width": 1}}
        best = [_number(value) for value in frontier.best]
        data.append(line | {"x": _numbers(axis.places), "y": best, "hoverinfo": "skip"})
    data.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": _numbers(places),
            "y": _numbers(mean),
            "line": {"color": colour, "width": 2},
            "marker": {
                "color": colour,
                "size": 8,
                "symbol": ["circle-open" if point.is_over else "circle" for point in points],
                "line": {"color": colour, "width": 1.5},
            },
            "customdata": [_hover(point, frontier) for point in points],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    data += [_target_level(target, ends) for target in frontier.targets]
    data += [_crossing(axis, line) for line in frontier.cheapest if line.found is not None]
    layout = {"xaxis": _axis(axis, ends), "yaxis": {"title": {"text": _ACCURACY}}}
    return {"data": data, "layout": layout | {"showlegend": False, "hovermode": "closest"}}


def _band(x: FloatArray, low: FloatArray, high: FloatArray, colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _numbers(x) + _numbers(x[::-1]),
        "y": _numbers(high) + _numbers(low[::-1]),
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.2,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _crossing(axis: Axis, line: Cheapest) -> dict[str, Any]:
    """Return the mark where a target is reached, with the budget."""
    assert line.found is not None
    at_most = line.found.below is None
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [axis.place(line.found.value)],
        "y": [line.target],
        "text": [f"{'≤ ' if at_most else ''}{axis.text(line.found.value)}"],
        "textposition": "bottom right",
        "textfont": {"color": TARGET_COLOUR},
        "marker": _target_marker([at_most]),
        "hoverinfo": "skip",
    }


def spent_chart(panel: SpentPanel, frontier: Frontier) -> dict[str, Any]:
    """Return accuracy against what was spent on a knob; filled points are on the Pareto front."""
    title = f"{panel.x_label}<br>(in an iteration{', log scale' if panel.is_log else ''})"
    layout = {
        "xaxis": {
            "title": {"text": title, "standoff": 8},
            "type": "log" if panel.is_log else "linear",
            "automargin": True,
        }
        | ({"tickvals": list(panel.ticks), "ticktext": list(panel.ticks.values())} if panel.is_log else {}),
        "yaxis": {"title": {"text": _ACCURACY}},
        "showlegend": len(panel.series) > 1,
        "legend": {"orientation": "h", "y": -0.3},
        "hovermode": "closest",
    }
    return {"data": [_spent_trace(series, frontier) for series in panel.series], "layout": layout}


def _spent_trace(series: Series, frontier: Frontier) -> dict[str, Any]:
    colour = line_style(series.group).colour
    return {
        "type": "scatter",
        "mode": "lines+markers" if series.is_line and len(series.x) > 1 else "markers",
        "name": escape(series.label, quote=False),
        "x": _numbers(series.x),
        "y": _numbers(series.y),
        "error_x": _errors(series.x_deviation, colour),
        "error_y": _errors(series.y_deviation, colour),
        "line": {"color": colour, "width": 1.2},
        "marker": {
            "color": colour,
            "size": 9,
            "symbol": ["circle" if front else "circle-open" for front in series.front],
            "line": {"color": colour, "width": 1.5},
        },
        "customdata": [_hover(point, frontier) for point in series.points],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _errors(deviation: FloatArray, colour: str) -> dict[str, Any]:
    values = _numbers(np.nan_to_num(deviation))
    return {"type": "data", "array": values, "color": colour, "thickness": 1, "width": 0}


def _target_trace(line: TargetLine) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": _numbers(line.x),
        "y": _numbers(line.y),
        "line": {"color": TARGET_COLOUR, "width": 2},
        "marker": _target_marker(line.at_most.tolist()),
        "cliponaxis": False,
        "hovertemplate": f"accuracy {line.target:g}<extra></extra>",
    }


def _target_marker(at_most: list[bool]) -> dict[str, Any]:
    symbols = ["triangle-left" if open_ended else "diamond" for open_ended in at_most]
    return {"color": TARGET_COLOUR, "size": 9, "symbol": symbols, "line": {"color": "white", "width": 1}}


def _target_level(target: float, ends: FloatArray) -> dict[str, Any]:
    """Return a target as a trace: plotly ignores shapes when it fits an axis."""
    return {
        "type": "scatter",
        "mode": "lines+text",
        "x": [float(ends[0]), float(ends[-1])],
        "y": [target, target],
        "text": [f"target {target:g}", ""],
        "textposition": "top right",
        "textfont": {"color": BUDGET_COLOUR},
        "line": {"color": BUDGET_COLOUR, "width": 1.3, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _axis(axis: Axis, ends: FloatArray) -> dict[str, Any]:
    """Return an axis that labels the values that were tried."""
    notes = [axis.note] * bool(axis.note) + ["log scale"] * (axis.is_log and len(axis.values) > 1)
    title = f"{axis.title}<br>({', '.join(notes)})" if notes else axis.title
    return {
        "title": {"text": title, "standoff": 8},
        "range": [_numbers(ends)[0], _numbers(ends)[-1]],  # rounded as marks at the border are
        "tickvals": _numbers(axis.places),
        "ticktext": [escape(text, quote=False) for text in axis.texts],
        "automargin": True,
    }


def _hover(point: Point, frontier: Frontier) -> str:
    first, *rest = [escape(line, quote=False) for line in point_text(point, frontier.knobs)]
    return "<br>".join([f"<b>{first}</b>", *rest])


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _numbers(values: FloatArray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
