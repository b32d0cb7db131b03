"""The picture of a frontier: a curve or maps of accuracy over budgets, and accuracy against spending."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator

from flexfl.report.figures import GRID, INK, MUTED, new_figure, save_as
from flexfl.report.frontier import STEM, Frontier
from flexfl.report.frontier_cells import Axis
from flexfl.report.frontier_panels import (
    FRONT_NOTE,
    MapPanel,
    SpentPanel,
    TargetLine,
    budget_curve,
    cell_text,
    edges,
    map_panels,
    spent_panels,
)
from flexfl.report.style import BUDGET_COLOUR, MAP_COLOURS, NO_SAMPLES, line_style

_PANEL = (4.7, 3.7)  # inches
_COLUMNS = 3
_ACROSS = 62  # characters in a line of a label
_MOST_NUMBERS = 10  # cells in a row up to which their accuracy is written in them
_COLOURS = LinearSegmentedColormap.from_list("accuracy", list(MAP_COLOURS), N=512)
TARGET_COLOUR = "#D55E00"


def write_picture(frontier: Frontier, out: Path, formats: Sequence[str]) -> list[str]:
    """Write the picture in each format, and return the file names."""
    return save_as(draw_frontier(frontier), out / STEM, formats)


def draw_frontier(frontier: Frontier) -> Figure:
    """Return the picture: for one setting a curve, else maps; and a panel for the spending on each knob."""
    maps, spent = map_panels(frontier), spent_panels(frontier)
    shades = _shades(frontier)
    draws: list[Callable[[Axes], None]] = [partial(_draw_map, panel=panel, shades=shades) for panel in maps]
    if not maps:
        draws.append(partial(_draw_curve, frontier=frontier))
    draws += [partial(_draw_spent, panel=panel, targets=frontier.targets) for panel in spent]
    columns = 2 if len(draws) == 4 else min(_COLUMNS, len(draws))
    rows = -(-len(draws) // columns)
    figure = new_figure(columns * _PANEL[0], rows * _PANEL[1])
    grid = figure.add_gridspec(rows, columns)
    for place, draw in enumerate(draws):
        draw(figure.add_subplot(grid[place // columns, place % columns]))
    return figure


def _shades(frontier: Frontier) -> Normalize:
    """Return the range of colours, the same for all maps."""
    known = frontier.accuracy[np.isfinite(frontier.accuracy)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    return Normalize(low, high if high > low else low + 0.01)


def _frame(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
    wrapped = "\n".join(textwrap.fill(line, _ACROSS) for line in x_label.splitlines())
    axes.set_xlabel(wrapped, fontsize=9, color=MUTED, parse_math=False)
    axes.set_ylabel(y_label, fontsize=9, color=MUTED, parse_math=False)
    axes.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")


def _ticks(axes: Axes, axis: Axis, which: str) -> None:
    """Label the values that were tried, and nothing else; those to the right turned if they are long."""
    getattr(axes, f"set_{which}ticks")(axis.places, axis.texts)
    characters = sum(len(text) + 2 for text in axis.texts)
    if which == "x" and characters > 48:
        axes.tick_params(axis="x", labelrotation=30)


def _label(axis: Axis) -> str:
    notes = [axis.note] * bool(axis.note) + ["log scale"] * (axis.is_log and len(axis.values) > 1)
    return f"{axis.title}\n({', '.join(notes)})" if notes else axis.title


def _draw_curve(axes: Axes, frontier: Frontier) -> None:
    """Draw accuracy over the only setting, with a band of one deviation."""
    (axis,) = frontier.axes
    _frame(axes, "What it buys", _label(axis), "test accuracy at the end")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    _ticks(axes, axis, "x")
    places, mean, deviation = budget_curve(frontier)
    colour = line_style(0).colour
    if axis.is_budget:
        axes.plot(axis.places, frontier.best, color=MUTED, linewidth=0.9, zorder=2, label="best up to here")
    axes.plot(places, mean, color=colour, linewidth=1.6, zorder=3, label="mean")
    over = np.array([point.is_over for point in frontier.points if point.accuracy is not None], dtype=bool)
    for some, face, label in ((~over, colour, None), (over, "white", "spent over budget")):
        if some.any():
            axes.plot(places[some], mean[some], "o", color=colour, mfc=face, zorder=4, label=label)
    known = np.isfinite(deviation)
    if known.any():
        low, high = mean[known] - deviation[known], mean[known] + deviation[known]
        axes.fill_between(
            places[known], low, high, color=colour, alpha=0.18, linewidth=0, label="± deviation"
        )
    _draw_targets(axes, frontier.targets)
    for line in frontier.cheapest:
        if line.found is not None:
            sign = "<" if line.found.below is None else "D"
            place = axis.place(line.found.value)
            axes.plot([place], [line.target], sign, color=TARGET_COLOUR, markersize=7, zorder=5)
            note = f"{'≤ ' if line.found.below is None else ''}{axis.text(line.found.value)}"
            _annotate(axes, note, place, line.target)
    if len(axis.values) > 1:
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="best")


def _draw_targets(axes: Axes, targets: Sequence[float]) -> None:
    for target in targets:
        axes.axhline(target, color=BUDGET_COLOUR, linestyle="dashed", linewidth=1.1, zorder=1)
        axes.annotate(
            f"target\n{target:g}",
            (1.0, target),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=BUDGET_COLOUR,
        )


def _annotate(axes: Axes, text: str, x: float, y: float, drop: float = 0.0) -> None:
    note = axes.annotate(
        text,
        (x, y),
        xytext=(7, -12 - drop),
        textcoords="offset points",
        fontsize=8.5,
        fontweight="bold",
        color=TARGET_COLOUR,
        zorder=6,
        parse_math=False,
    )
    note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _draw_map(axes: Axes, panel: MapPanel, shades: Normalize) -> None:
    """Draw accuracy over two settings as coloured cells, with the lines where targets are reached."""
    x_label = "\n".join([_label(panel.x_axis), *([panel.note] if panel.note else [])])
    _frame(axes, panel.title or "What they buy", x_label, _label(panel.y_axis))
    _ticks(axes, panel.x_axis, "x")
    _ticks(axes, panel.y_axis, "y")
    axes.patch.set_facecolor(NO_SAMPLES)
    shown = np.ma.masked_invalid(panel.accuracy)
    borders = edges(panel.x_axis.places), edges(panel.y_axis.places)
    mesh = axes.pcolormesh(*borders, shown, cmap=_COLOURS, norm=shades, edgecolors="white", linewidth=1.2)
    if len(panel.x_axis.values) <= _MOST_NUMBERS:
        _write_numbers(axes, panel, shades)
    for number, line in enumerate(panel.lines):
        _draw_line(axes, line, number)
    assert axes.figure is not None
    bar = axes.figure.colorbar(mesh, ax=axes, fraction=0.045, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label("test accuracy at the end", fontsize=9, color=MUTED)
    bar.ax.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)


def _write_numbers(axes: Axes, panel: MapPanel, shades: Normalize) -> None:
    for (i, j), point in panel.points.items():
        dark = point.accuracy is not None and shades(point.mean) > 0.5
        axes.annotate(
            "\n".join(cell_text(point)),
            (panel.x_axis.places[i], panel.y_axis.places[j]),
            xytext=(0, 5),  # above the middle, where lines of targets are
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            color="white" if dark else INK,
        )


def _draw_line(axes: Axes, line: TargetLine, number: int) -> None:
    """Draw where a target is reached; a triangle points to where less might do, perhaps for several."""
    outline = [withStroke(linewidth=3.5, foreground="white")]
    axes.plot(line.x, line.y, color=TARGET_COLOUR, linewidth=1.6, zorder=4, path_effects=outline)
    for x, y, at_most in zip(line.x, line.y, line.at_most, strict=True):
        sign = "<" if at_most else "D"
        axes.plot([x], [y], sign, color=TARGET_COLOUR, markersize=6, markeredgecolor="white", zorder=5)
    named = int(np.argmin(line.at_most))  # lines of two targets may meet at the border
    _annotate(axes, f"{line.target:g}", float(line.x[named]), float(line.y[named]), drop=12 * number)


def _draw_spent(axes: Axes, panel: SpentPanel, targets: Sequence[float]) -> None:
    """Draw accuracy against what was spent; filled points are on the Pareto front."""
    label = f"{panel.x_label}\n(in an iteration{', log scale' if panel.is_log else ''}; {FRONT_NOTE})"
    _frame(axes, f"What it spends on {panel.knob}", label, "test accuracy at the end")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    if panel.is_log:
        axes.set_xscale("log")
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        axes.xaxis.set_minor_locator(NullLocator())
    for series in panel.series:
        colour = line_style(series.group).colour
        if series.is_line:
            axes.plot(series.x, series.y, color=colour, linewidth=1.2, alpha=0.7, label=series.label)
        across, up = np.nan_to_num(series.x_deviation), np.nan_to_num(series.y_deviation)
        axes.errorbar(series.x, series.y, up, across, "none", ecolor=colour, elinewidth=0.8, alpha=0.6)
        for filled in (True, False):
            some = series.front == filled
            face = colour if filled else "white"
            axes.plot(series.x[some], series.y[some], "o", color=colour, markerfacecolor=face, markersize=6)
    _draw_targets(axes, targets)
    if len(panel.series) > 1:
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="best")
