"""The paper's figures on one interactive page, each with its table and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from flexfl.parameters import KNOBS
from flexfl.report.evidence import Evidence, Row
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
from flexfl.units import show

_COSTS = {"compute": "Computation", "uplink": "Client comm.", "downlink": "Server comm."}


def write_evidence(figures: Sequence[Evidence], title: str, out: Path) -> Path:
    """Write the files of all figures and a page with all of them.

    Args:
        figures: The figures. The page of a single figure is named after it, so that figures can be
            written one by one; else it is index.html.
        title: Title of the page.
        out: The folder to write to.

    Returns:
        The path of the page.
    """
    name = figures[0].key if len(figures) == 1 else "index"
    body, charts = [_header(title, figures)], dict[str, Any]()
    for figure in figures:
        figure.write(out)
        prefix = f"{figure.key}-"
        charts |= charts_by_id([figure.section], prefix)
        parts = [
            section_html(figure.section, prefix, above=legend_html(figure.groups, prefix)),
            _table(figure),
            _sources(figure, prefix),
        ]
        body.append(f'<article id="{figure.key}">{"".join(parts)}</article>')
    return write_document(title, body, charts, out / f"{name}.html")


def _header(title: str, figures: Sequence[Evidence]) -> str:
    links = ", ".join(f'<a href="#{figure.key}">{escape(figure.title)}</a>' for figure in figures)
    return (
        f"<header><h1>{escape(title)}</h1><p>{links}. Click a method above a figure to hide or show it, "
        "double click to see it alone; drag in a chart to zoom, double click there to zoom out; point at "
        "a curve to read its values and where its runs are stored.</p>"
        "<noscript><p>The charts need JavaScript; the pictures beside this page show the same.</p></noscript>"
        "</header>"
    )


def _table(figure: Evidence) -> str:
    heads = ["Method", "Seeds", "Final accuracy", "Training loss"]
    heads += [f"Iterations to {target:.2f}" for target in figure.targets]
    heads += list(_COSTS.values())
    rows = [_row(index, row, figure, heads) for index, row in enumerate(figure.rows)]
    links = " ".join(
        f'<a href="{figure.key}{end}">{figure.key}{end}</a>'
        for end in (".png", ".svg", ".csv", "-curves.csv")
    )
    return (
        "<p>Final accuracy is the mean of the last ten evaluations, ± one standard deviation over seeds; "
        f"costs are averages over the whole run, in percent of the budget. Files: {links}.</p>"
        f"{table_html(heads, rows, 'cards')}"
    )


def _row(index: int, row: Row, figure: Evidence, heads: Sequence[str]) -> str:
    cells = [
        group_html(index, figure.groups[index]),
        f"{row.seeds}<small>{plural(row.iterations, 'iteration')}</small>"
        f"<small>{row.seconds.mean:.0f} s each</small>",
        str(row.accuracy),
        str(row.train_loss),
    ]
    for first, count in row.reached.values():
        text = "–" if first is None else str(first)
        cells.append(text if count == row.seeds else f"{text}<small>{count} of {row.seeds} seeds</small>")
    for knob in KNOBS:
        (spent, budget), unit = row.costs[knob], row.units[knob]
        if budget is None:
            cells.append(f"{spent.text(unit)}<small>no budget</small>")
        else:
            amounts = f"{show(spent.mean, unit, 4)} of {show(budget, unit, 6)}"
            cells.append(f"{spent.mean / budget:.1%}<small>{amounts}</small>")
    named = zip(heads, cells, strict=True)
    return "".join(f'<td data-head="{escape(head)}"><div>{cell}</div></td>' for head, cell in named)


def _sources(figure: Evidence, prefix: str) -> str:
    """Return the runs and settings of a figure as a folded block, since it is long."""
    return (
        f"<details><summary>Runs and settings of {escape(figure.title)}</summary>"
        f"{runs_html(figure.groups, prefix)}{settings_html(figure.groups, prefix)}</details>"
    )
