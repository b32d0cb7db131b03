"""A figure of partitions: for each, bars above and a heat map below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from flexfl.report.figures import GRID, INK, MUTED, new_figure, save_as
from flexfl.report.partitions import PartitionMap
from flexfl.report.style import BAR_COLOUR, MAP_COLOURS, NO_SAMPLES

_WIDTH = 9.4  # inches
_BARS_ONLY, _WITH_CLASSES, _MANY_CLASSES = 2.3, 3.9, 5.2
# Up to this many columns, a line separates neighbouring clients.
_MOST_WITH_GAPS = 120
_COLOURS = LinearSegmentedColormap.from_list("samples", list(MAP_COLOURS), N=512)


def write_partitions(
    maps: Sequence[PartitionMap], out: Path, formats: Sequence[str] = ("png",)
) -> tuple[str, ...]:
    """Write one figure of all partitions in each format; return the file names, none without partitions."""
    if not maps:
        return ()
    heights = [_height(map_) for map_ in maps]
    figure = new_figure(_WIDTH, sum(heights))
    parts = figure.subfigures(len(maps), 1, squeeze=False, height_ratios=heights)
    for part, map_ in zip(parts[:, 0], maps, strict=True):
        _draw(part, map_)
    return tuple(save_as(figure, out / "partition", formats))


def _height(map_: PartitionMap) -> float:
    notes = 0.18 * len(_notes(map_))
    if map_.rows is None:
        return _BARS_ONLY + notes
    return (_WITH_CLASSES if map_.rows[-1] <= 20 else _MANY_CLASSES) + notes


def _notes(map_: PartitionMap) -> list[str]:
    return [line for note in map_.notes for line in textwrap.wrap(note, 110)]


def _draw(figure: SubFigure, map_: PartitionMap) -> None:
    x_label = "\n".join(["client", *_notes(map_)])
    if map_.counts is None or map_.rows is None:
        bars = figure.add_subplot()
        _bars(bars, map_)
        bars.set_xlabel(x_label, fontsize=9, color=MUTED, parse_math=False)
        return
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 3), width_ratios=(60, 1), wspace=0.02, hspace=0.0)
    heat = figure.add_subplot(grid[1, 0])
    bars = figure.add_subplot(grid[0, 0], sharex=heat)
    _bars(bars, map_)
    bars.tick_params(bottom=False, labelbottom=False)
    _axis(heat)
    heat.patch.set_facecolor(NO_SAMPLES)
    shown = np.ma.masked_equal(map_.counts, 0)
    mesh = heat.pcolormesh(
        map_.columns - 0.5, map_.rows - 0.5, shown, cmap=_COLOURS, vmin=0, vmax=map_.counts.max()
    )
    if len(map_.sizes) <= _MOST_WITH_GAPS:
        heat.vlines(map_.columns - 0.5, -0.5, map_.rows[-1] - 0.5, color="white", linewidth=0.6)
    heat.set_ylabel("class", fontsize=9, color=MUTED)
    heat.set_xlabel(x_label, fontsize=9, color=MUTED, parse_math=False)
    heat.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    bar = figure.colorbar(mesh, cax=figure.add_subplot(grid[1, 1]))
    bar.outline.set_visible(False)
    bar.set_label(f"{map_.unit} (grey: none)", fontsize=9, color=MUTED)
    bar.ax.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)


def _bars(axes: Axes, map_: PartitionMap) -> None:
    _axis(axes)
    axes.set_title(map_.title, loc="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
    axes.stairs(map_.sizes, map_.columns - 0.5, fill=True, color=BAR_COLOUR)
    if len(map_.sizes) <= _MOST_WITH_GAPS:
        higher = np.maximum(np.append(map_.sizes, 0), np.append(0, map_.sizes))  # of two neighbours
        axes.vlines(map_.columns - 0.5, 0, higher, color="white", linewidth=0.6)
    axes.set_ylabel(map_.unit.replace(" per", "\nper"), fontsize=9, color=MUTED)
    axes.set_xlim(-0.5, float(map_.columns[-1]) - 0.5)
    axes.set_ylim(0, 1.08 * float(map_.sizes.max()))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 5, 10]))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _axis(axes: Axes) -> None:
    axes.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
