"""A comparison as files: tables, the figure, and one HTML page with both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from flexfl.report.axes import Axis, axis_of
from flexfl.report.compare import Comparison
from flexfl.report.compare_tables import Table, tables_of
from flexfl.report.evidence import zoom_accuracy
from flexfl.report.figures import draw_row, save_as
from flexfl.report.page import (
    charts_by_id,
    group_html,
    legend_html,
    plural,
    runs_html,
    section_html,
    settings_html,
    table_html,
    write_document,
)
from flexfl.report.panels import MOST_LINES, Panel, Section, evaluated_panel
from flexfl.report.targets import write_rows
from flexfl.results.files import create_output_folder, write_text

STEM = "compare"
_SIZE = (14.1, 4.4)  # inches
_TITLES = {
    "uplink-cost": "For what a client spends",
    "bytes": "For what is sent",
    "iteration": "Over iterations",
}


def section_of(comparison: Comparison) -> Section:
    """Return the figure: test accuracy against uplink cost, bytes and iterations."""
    axes = (_per_client(comparison), *(axis_of(name, comparison.groups) for name in ("bytes", "iteration")))
    panels = [evaluated_panel(comparison.groups, "test_accuracy", axis) for axis in axes]
    drawn: list[Panel] = []
    crowded = len(comparison.groups) > MOST_LINES
    for panel, axis in zip(panels, axes, strict=True):
        named = replace(panel, key=f"accuracy-{axis.name}", title=_TITLES[axis.name])
        if crowded:
            bare = tuple(replace(curve, low=None, high=None) for curve in named.curves)
            named = replace(named, curves=bare, band="")
        named = zoom_accuracy(named) if named.curves else named
        notes = _budget_notes(comparison, axis) if axis.name == "uplink-cost" else ()
        drawn.append(replace(named, notes=(*named.notes, *notes)))
    band = ", with a band of one standard deviation"
    text = (
        f"Test accuracy against what was spent until then: mean over seeds{'' if crowded else band}, as far "
        "as all seeds of a method go."
    )
    if crowded:
        text += " Deviations and averaged models are in the table."
    return Section(STEM, "Accuracy for what is spent", text, tuple(drawn))


def _per_client(comparison: Comparison) -> Axis:
    """Return the axis of uplink cost, for a client instead of all."""
    axis = axis_of("uplink-cost", comparison.groups)
    label = axis.label.replace("uplink cost of all clients", "uplink cost spent by a client on average")
    return replace(axis, label=label, divisor=axis.divisor * comparison.clients)


def _budget_notes(comparison: Comparison, axis: Axis) -> tuple[str, ...]:
    """Return a note on what a client may spend on the uplink in the whole run; none without a budget."""
    if comparison.groups[0].budget("uplink") is None:
        return ()
    return (f"the budget for the whole run is {comparison.ends['uplink-cost'] / axis.divisor:.4g}",)


def markdown(comparison: Comparison) -> str:
    """Return the tables as one Markdown document."""
    seeds = sorted({len(one.point.runs) for one in comparison.contenders})
    many = "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    title = f"# Methods compared on {comparison.name}, {many} seed{'' if seeds[-1] == 1 else 's'}\n"
    missing = f"\nWithout a finished run: {', '.join(comparison.missing)}.\n" if comparison.missing else ""
    return "\n".join([title + missing, *(table.markdown() for table in tables_of(comparison))])


def write_comparison(comparison: Comparison, out: Path, formats: Sequence[str] = ("png", "svg")) -> Path:
    """Write compare.md, .csv, .json, the curves, the figure and the page; return the path of the page.

    Args:
        comparison: The results.
        out: The folder to write to.
        formats: The formats of the figure: png, svg, pdf.
    """
    create_output_folder(out)
    section = section_of(comparison)
    pictures = save_as(draw_row(section.panels, _SIZE), out / STEM, formats)
    write_text(out / f"{STEM}.md", markdown(comparison))
    write_rows(out / f"{STEM}.csv", comparison.rows())
    write_rows(out / f"{STEM}-curves.csv", [dict(point) for point in comparison.points()])
    write_text(out / f"{STEM}.json", json.dumps(comparison.plain(), indent=2, ensure_ascii=False) + "\n")
    files = [*pictures, *(f"{STEM}{end}" for end in (".md", ".csv", "-curves.csv", ".json"))]
    groups = comparison.groups
    body = [
        _header(comparison, files),
        section_html(section, above=legend_html(groups)),
        *(_table(table, comparison) for table in tables_of(comparison)),
        f"<details><summary>Runs and settings</summary>{runs_html(groups)}{settings_html(groups)}</details>",
    ]
    title = f"FlexFL comparison on {comparison.name}"
    return write_document(title, body, charts_by_id([section]), out / f"{STEM}.html")


def _header(comparison: Comparison, files: Sequence[str]) -> str:
    runs = sum(len(one.point.runs) for one in comparison.contenders)
    links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in files)
    missing = ", ".join(comparison.missing)
    gone = f'<p class="broken">Without a finished run: {escape(missing)}.</p>' if missing else ""
    return (
        f"<header><h1>Methods compared on {escape(comparison.name)}</h1>"
        f"<p>{plural(len(comparison.contenders), 'method')}, {plural(runs, 'run')}, with the same data, "
        f"model, costs and budgets. Files: {links}.</p>{gone}"
        "<noscript><p>The charts need JavaScript; the picture shows the same.</p></noscript></header>"
    )


def _table(table: Table, comparison: Comparison) -> str:
    names = [one.name for one in comparison.contenders]
    rows = []
    for cells in table.rows:  # a name, and in brackets its paper; a name may have brackets, too
        fits = [name for name in names if f"{cells[0]} (".startswith(f"{name} (")]
        place = names.index(max(fits, key=len))
        paper = cells[0].removeprefix(comparison.contenders[place].name).strip(" ()")
        small = f"<small>{escape(paper)}</small>" if paper else ""
        first = f"{group_html(place, comparison.groups[place])}{small}"
        named = zip(table.heads, (first, *map(escape, cells[1:])), strict=True)
        rows.append("".join(f'<td data-head="{escape(head)}"><div>{cell}</div></td>' for head, cell in named))
    heads = [head[0].upper() + head[1:] for head in table.heads]
    key = table.title.lower().replace(" ", "-")
    return (
        f'<section id="{escape(key)}"><h2>{escape(table.title)}</h2><p>{escape(table.text)}</p>'
        f"{table_html(heads, rows, 'cards')}</section>"
    )
