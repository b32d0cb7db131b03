"""The figures of a paper on one interactive page: a chapter for each, with its table and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from flexfl.parameters import KNOBS
from flexfl.report.evidence import Evidence, Row
from flexfl.report.page import (
    charts_of,
    legend,
    name_of,
    plural,
    runs_of,
    section_of,
    settings_of,
    table,
    write_document,
)

_COSTS = {"compute": "Computation", "uplink": "Client comm.", "downlink": "Server comm."}


def write_evidence(figures: Sequence[Evidence], title: str, out: Path) -> Path:
    """The files of every figure, and a page with all of them; returns its path.

    The page of a single figure is called after it, so that figures can be made one by one.
    """
    name = figures[0].key if len(figures) == 1 else "index"
    body, charts = [_header(title, figures)], dict[str, Any]()
    for figure in figures:
        figure.write(out)
        chapter = f"{figure.key}-"
        charts |= charts_of([figure.section], chapter)
        parts = [
            section_of(figure.section, chapter, above=legend(figure.groups, chapter)),
            _table(figure),
            _sources(figure, chapter),
        ]
        body.append(f'<article id="{figure.key}">{"".join(parts)}</article>')
    return write_document(title, body, charts, out / f"{name}.html")


def _header(title: str, figures: Sequence[Evidence]) -> str:
    links = ", ".join(f'<a href="#{figure.key}">{escape(figure.title)}</a>' for figure in figures)
    return (
        f"<header><h1>{escape(title)}</h1><p>{links}. Click a method above a figure to hide or show it, "
        "double click to see it alone; drag in a chart to zoom, double click there to go back; point at "
        "a curve to read its values and where its runs lie.</p>"
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
        f"{table(heads, rows, 'cards')}"
    )


def _row(index: int, row: Row, figure: Evidence, heads: Sequence[str]) -> str:
    cells = [
        name_of(index, figure.groups[index]),
        f"{row.seeds}<small>{plural(row.iterations, 'iteration')}</small>"
        f"<small>{row.seconds.mean:.0f} s each</small>",
        str(row.accuracy),
        str(row.train_loss),
    ]
    for first, count in row.reached.values():
        told = "–" if first is None else str(first)
        cells.append(told if count == row.seeds else f"{told}<small>{count} of {row.seeds} seeds</small>")
    for knob in KNOBS:
        spent, budget = row.costs[knob]
        if budget is None:
            cells.append(f"{spent}<small>no budget</small>")
        else:
            cells.append(f"{spent.mean / budget:.1%}<small>{spent.mean:.4g} of {budget:g}</small>")
    named = zip(heads, cells, strict=True)
    return "".join(f'<td data-head="{escape(head)}"><div>{cell}</div></td>' for head, cell in named)


def _sources(figure: Evidence, chapter: str) -> str:
    """Which run each curve came from; folded, since it is long."""
    return (
        f"<details><summary>Runs and settings of {escape(figure.title)}</summary>"
        f"{runs_of(figure.groups, chapter)}{settings_of(figure.groups, chapter)}</details>"
    )
