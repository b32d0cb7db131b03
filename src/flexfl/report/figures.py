"""Figures as PNG, SVG or PDF, drawn with matplotlib's objects: no pyplot, thus no global state."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from flexfl.errors import Fault, nearest
from flexfl.report.curves import Curve
from flexfl.report.panels import AVERAGED, CHARGED, Panel, Section, overview_panels
from flexfl.report.style import AVERAGED as AVERAGED_DASH
from flexfl.report.style import BUDGET_COLOUR, line_style

INK, MUTED, GRID = "#222222", "#666666", "#e4e4e4"
_DPI = 150
_PANEL = (4.7, 3.3)  # inches
_NOTE_WIDTH, _NOTE_HEIGHT = 46, 0.19  # characters, inches for each line
_FREE_NOTES = 2  # lines of notes for which a panel has room


FORMATS = ("png", "svg", "pdf")


def format_faults(formats: Sequence[str]) -> list[Fault]:
    """Return a fault for each format in which figures cannot be written."""
    rule = f"must list some of {', '.join(FORMATS)}"
    unknown = [name for name in formats or [""] if name not in FORMATS]
    return [Fault("format", rule, name, nearest(name, FORMATS)) for name in unknown]


def write_figures(
    sections: Sequence[Section], out: Path, formats: Sequence[str] = ("png",)
) -> tuple[str, ...]:
    """Write a file for each section, and the overview, in each format; return the file names."""
    names: list[str] = []
    for section in sections:
        columns = 2 if len(section.panels) % 2 == 0 else 3
        rows = -(-len(section.panels) // columns)
        height = rows * (_PANEL[1] + _notes_height(section.panels))
        figure = new_figure(columns * _PANEL[0], height)
        grid = figure.add_gridspec(rows, columns)
        cells = [grid[index // columns, index % columns] for index in range(len(section.panels))]
        _draw_all(figure, section.panels, cells)
        names += save_as(figure, out / section.key, formats)
    return tuple(names + save_as(_overview(overview_panels(sections)), out / "overview", formats))


def write_overview(panels: Sequence[Panel], path: Path) -> str:
    """Write the main panels as one figure, two above three; return the file name.

    Args:
        panels: The panels of `overview_panels`.
        path: The file; its suffix gives the format: PNG, SVG or PDF.
    """
    return save_figure(_overview(panels), path)


def _overview(panels: Sequence[Panel]) -> Figure:
    below = _notes_height(panels)
    figure = new_figure(12.0, 6.6 + below)
    grid = figure.add_gridspec(2, 6, height_ratios=(3.3, 3.3 + below))
    cells = [grid[0, :3], grid[0, 3:], grid[1, :2], grid[1, 2:4], grid[1, 4:]]
    _draw_all(figure, panels, cells)
    return figure


def draw_row(panels: Sequence[Panel], size: tuple[float, float] | None = None) -> Figure:
    """Return a figure with panels side by side; each without a title if it is alone.

    Args:
        panels: The panels.
        size: Width and height of the figure, in inches; by default those of the report's panels.
    """
    figure = new_figure(*(size or (len(panels) * _PANEL[0], _PANEL[1] + _notes_height(panels))))
    grid = figure.add_gridspec(1, len(panels))
    _draw_all(figure, panels, [grid[0, index] for index in range(len(panels))])
    if len(panels) == 1:
        figure.axes[0].set_title("", loc="left")
    return figure


class _NotebookFigure(Figure):
    """A figure that a notebook shows, although it was made without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.03)
    figure = _NotebookFigure(figsize=(width, height), dpi=_DPI, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _draw_all(figure: Figure, panels: Sequence[Panel], cells: Sequence[SubplotSpec]) -> None:
    for panel, cell in zip(panels, cells, strict=True):
        _draw(figure.add_subplot(cell), panel)
    _legend(figure, panels)


def _note_lines(panel: Panel) -> list[str]:
    return [textwrap.fill(note, _NOTE_WIDTH) for note in panel.notes]


def _notes_height(panels: Sequence[Panel]) -> float:
    """Return the inches by which panels must be higher for their notes."""
    lines = [len("\n".join(_note_lines(panel)).splitlines()) for panel in panels if panel.curves]
    return _NOTE_HEIGHT * max(0, max(lines, default=0) - _FREE_NOTES)


def save_as(figure: Figure, stem: Path, formats: Sequence[str]) -> list[str]:
    """Write a figure in each format, and return the file names; `stem` is their path without a suffix."""
    return [save_figure(figure, stem.with_name(f"{stem.name}.{name}")) for name in formats]


def save_figure(figure: Figure, path: Path) -> str:
    """Write a figure and return the file name."""
    with warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; the page shows them correctly.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Reproducible files: no date, no random IDs. Publishers refuse PDF files with fonts of type 3.
        settings: dict[Any, Any] = {"svg.hashsalt": path.name, "pdf.fonttype": 42}
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        with rc_context(settings):
            figure.savefig(path, metadata=dates.get(path.suffix))
    return path.name


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.set_ylabel(panel.y_label, fontsize=9, color=MUTED)
    if not panel.curves:
        _draw_empty(axes, panel)
        return
    # Notes are below the axis, where they cover no data.
    label = textwrap.fill(panel.x_label, _NOTE_WIDTH)
    axes.set_xlabel("\n".join([label, *_note_lines(panel)]), fontsize=9, color=MUTED, parse_math=False)
    axes.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=panel.x_label == "iteration"))
    for curve in panel.curves:
        _plot(axes, curve)
    for budget, label in zip(panel.budgets, panel.budget_labels, strict=True):
        _budget(axes, budget, label)
    if panel.is_log:
        axes.set_yscale("log", nonpositive="mask")
    axes.set_xlim(0, 1.015 * panel.x_end)
    axes.set_ylim(*panel.y_range)


def _draw_empty(axes: Axes, panel: Panel) -> None:
    """Draw the reason why there is no data, instead of an empty plot."""
    axes.set_xlabel(panel.x_label, fontsize=9, color=MUTED)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.patch.set_facecolor("#f6f6f6")
    text = textwrap.fill("; ".join(panel.notes), 34)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=9, color=MUTED)


def _plot(axes: Axes, curve: Curve) -> None:
    colour, dash = line_style(curve.group)
    dash = AVERAGED_DASH if curve.averaged else dash
    width, level = (0.8, 3.5) if curve.thin else (1.6, 3)
    (line,) = axes.plot(
        curve.x, curve.mean, color=colour, linestyle=dash.matplotlib, linewidth=width, zorder=level
    )
    if len(curve.x) == 1:  # a line needs two points
        line.set(marker="o", clip_on=False)
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)


def _budget(axes: Axes, budget: float, label: str) -> None:
    axes.axhline(budget, color=BUDGET_COLOUR, linestyle="dashed", linewidth=1.3, zorder=4)
    text = axes.annotate(
        label,
        (1.0, budget),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
        color=BUDGET_COLOUR,
    )
    text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _legend(figure: Figure, panels: Sequence[Panel]) -> None:
    """Draw one legend for all panels below them: the groups, then what the bands show."""
    labels = {curve.group: curve.label for panel in panels for curve in panel.curves if curve.is_main}
    entries: list[tuple[Artist, str]] = []
    for group, label in sorted(labels.items()):
        colour, dash = line_style(group)
        handle = Line2D([], [], color=colour, linestyle=dash.matplotlib, linewidth=2)
        entries.append((handle, label))
    if any(panel.has_averaged for panel in panels):
        entries.append((Line2D([], [], color=MUTED, linestyle="dashed", linewidth=1.6), AVERAGED))
    if any(panel.has_charged for panel in panels):
        entries.append((Line2D([], [], color=MUTED, linewidth=0.8), CHARGED))
    bands = dict.fromkeys(panel.band for panel in panels if panel.band)
    entries += [(Patch(color="#cccccc"), f"band: {band}") for band in bands]
    if not entries:
        return
    widest = max(len(label) for _, label in entries)
    characters = figure.get_figwidth() * 12  # per line, roughly
    columns = max(1, min(len(entries), int(characters // (widest + 8))))
    legend = figure.legend(
        [handle for handle, _ in entries],
        [textwrap.fill(label, int(characters)) for _, label in entries],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a "$" in a setting is literal
