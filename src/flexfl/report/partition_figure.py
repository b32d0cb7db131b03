"""Maps of partitions as a PNG figure: bars above, colours below, one map under the other."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from flexfl.report.figures import GRID, INK, MUTED, blank, save
from flexfl.report.partitions import Map
from flexfl.report.style import BAR_COLOUR, MAP_COLOURS, NO_SAMPLES

_WIDTH = 9.4  # inches
_BARS_ONLY, _WITH_CLASSES, _MANY_CLASSES = 2.3, 3.9, 5.2
# Up to so many columns, a line between neighbours shows where one client ends.
_MOST_APART = 120
_COLOURS = LinearSegmentedColormap.from_list("samples", list(MAP_COLOURS), N=512)


def write_partitions(maps: Sequence[Map], out: Path) -> tuple[str, ...]:
    """One file for all of them; its name, or nothing without any."""
    if not maps:
        return ()
    heights = [_height(drawn) for drawn in maps]
    figure = blank(_WIDTH, sum(heights))
    below = figure.subfigures(len(maps), 1, squeeze=False, height_ratios=heights)
    for place, drawn in zip(below[:, 0], maps, strict=True):
        _draw(place, drawn)
    return (save(figure, out / "partition.png"),)


def _height(drawn: Map) -> float:
    notes = 0.18 * len(_notes(drawn))
    if drawn.rows is None:
        return _BARS_ONLY + notes
    return (_WITH_CLASSES if drawn.rows[-1] <= 20 else _MANY_CLASSES) + notes


def _notes(drawn: Map) -> list[str]:
    return [line for note in drawn.notes for line in textwrap.wrap(note, 110)]


def _draw(place: SubFigure, drawn: Map) -> None:
    below = "\n".join(["client", *_notes(drawn)])
    if drawn.counts is None or drawn.rows is None:
        bars = place.add_subplot()
        _bars(bars, drawn)
        bars.set_xlabel(below, fontsize=9, color=MUTED, parse_math=False)
        return
    grid = place.add_gridspec(2, 2, height_ratios=(1, 3), width_ratios=(60, 1), wspace=0.02, hspace=0.0)
    heat = place.add_subplot(grid[1, 0])
    bars = place.add_subplot(grid[0, 0], sharex=heat)
    _bars(bars, drawn)
    bars.tick_params(bottom=False, labelbottom=False)
    _axis(heat)
    heat.patch.set_facecolor(NO_SAMPLES)
    shown = np.ma.masked_equal(drawn.counts, 0)
    mesh = heat.pcolormesh(
        drawn.columns - 0.5, drawn.rows - 0.5, shown, cmap=_COLOURS, vmin=0, vmax=drawn.counts.max()
    )
    if len(drawn.sizes) <= _MOST_APART:
        heat.vlines(drawn.columns - 0.5, -0.5, drawn.rows[-1] - 0.5, color="white", linewidth=0.6)
    heat.set_ylabel("class", fontsize=9, color=MUTED)
    heat.set_xlabel(below, fontsize=9, color=MUTED, parse_math=False)
    heat.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    bar = place.colorbar(mesh, cax=place.add_subplot(grid[1, 1]))
    bar.outline.set_visible(False)
    bar.set_label(f"{drawn.unit} (grey: none)", fontsize=9, color=MUTED)
    bar.ax.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)


def _bars(axes: Axes, drawn: Map) -> None:
    _axis(axes)
    axes.set_title(drawn.title, loc="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
    axes.stairs(drawn.sizes, drawn.columns - 0.5, fill=True, color=BAR_COLOUR)
    if len(drawn.sizes) <= _MOST_APART:
        higher = np.maximum(np.append(drawn.sizes, 0), np.append(0, drawn.sizes))  # of two neighbours
        axes.vlines(drawn.columns - 0.5, 0, higher, color="white", linewidth=0.6)
    axes.set_ylabel(drawn.unit.replace(" per", "\nper"), fontsize=9, color=MUTED)
    axes.set_xlim(-0.5, float(drawn.columns[-1]) - 0.5)
    axes.set_ylim(0, 1.08 * float(drawn.sizes.max()))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 5, 10]))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _axis(axes: Axes) -> None:
    axes.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
