"""The report as one self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from flexfl import __version__
from flexfl.report.charts import chart, group_key
from flexfl.report.groups import Group, differing_settings, format_setting
from flexfl.report.panels import AVERAGED, CHARGED, KNOB_TITLES, Panel, Section
from flexfl.report.partition_chart import partition_chart
from flexfl.report.partitions import SECTION_TEXT, SECTION_TITLE, PartitionMap
from flexfl.report.style import line_style
from flexfl.report.summary import AverageCost, Estimate, Row, notes_of, row_of
from flexfl.report.targets import FILE, RESOURCES, Reached
from flexfl.results import Run

# The browser blocks every network request of the page.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)

_NOTHING = "–"
_OTHER_FORMS = (
    "Of a budget for the whole run they are what was spent in all; of a rate (/ month) what is spent in that "
    "time at this pace."
)


def write_page(
    groups: Sequence[Group],
    sections: Sequence[Section],
    figures: Sequence[str],
    path: Path,
    maps: Sequence[PartitionMap] = (),
    reached: Sequence[Reached] = (),
) -> Path:
    """Write the page and return its path.

    Args:
        groups: The groups of runs.
        sections: The sections of the report.
        figures: Names of the figures' files beside the page, to link to.
        path: The file to write.
        maps: The partitions to show.
        reached: The rows of "resources to accuracy", target by target.
    """
    body = [
        _header(groups, figures),
        legend_html(groups),
        _summary(groups),
        _resources(reached, len(groups)),
        *(section_html(section) for section in sections),
        _partitions(maps),
        runs_html(groups),
        settings_html(groups),
    ]
    title = f"FlexFL report: {', '.join(group.label for group in groups)}"
    charts = charts_by_id(sections) | {map_.key: partition_chart(map_) for map_ in maps}
    return write_document(title, body, charts, path)


def charts_by_id(sections: Sequence[Section], prefix: str = "") -> dict[str, Any]:
    """Return the charts of these sections by the IDs of their elements, which start with `prefix`."""
    panels = [panel for section in sections for panel in section.panels]
    return {prefix + panel.key: chart(panel, prefix) for panel in panels if panel.curves}


def write_document(title: str, body: Sequence[str], charts: Mapping[str, Any], path: Path) -> Path:
    """Write an HTML file with all styles and scripts in it, and return its path.

    Args:
        title: Title of the page.
        body: HTML of the page's parts.
        charts: Plotly charts by the IDs of their elements.
        path: The file to write.
    """
    from plotly.offline import get_plotlyjs

    path.write_text(
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        f"<style>{_asset('page.css')}</style></head>\n"
        f"<body><main>{''.join(body)}</main>\n"
        f'<script type="application/json" id="charts">{_json(charts)}</script>\n'
        f"<script>{get_plotlyjs()}</script>\n"
        f"<script>{_asset('page.js')}</script>\n"
        "</body></html>\n",
        encoding="utf-8",
    )
    return path


def _asset(name: str) -> str:
    return files("flexfl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """Return JSON that cannot close the script element around it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(2, "run")
    '2 runs'
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


# Parts of the page ---------------------------------------------------------------------------


def _header(groups: Sequence[Group], figures: Sequence[str]) -> str:
    runs = sum(len(group.runs) for group in groups)
    links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in figures)
    return (
        "<header><h1>FlexFL report</h1>"
        f"<p>{plural(runs, 'run')} in {plural(len(groups), 'group')}; runs that differ only in "
        f"the seed are one group. As images: {links}.</p>"
        "<noscript><p>The charts need JavaScript; the images above show the same.</p></noscript></header>"
    )


def group_html(index: int, group: Group) -> str:
    """Return a group's label with a sample of its line."""
    return _name(index, group.label)


def _name(index: int, label: str) -> str:
    colour, dash = line_style(index)
    return (
        f'<span class="name"><span class="swatch" style="border-top:3px {dash.css} {colour}"></span>'
        f"<span>{escape(label)}</span></span>"
    )


def legend_html(groups: Sequence[Group], prefix: str = "") -> str:
    """Return the legend: a button for each group that hides or shows it in all charts with `prefix`."""
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-group="{group_key(index, prefix)}">'
        f"{group_html(index, group)}</button>"
        for index, group in enumerate(groups)
    )
    return (
        f'<nav aria-label="Groups" title="Click: show or hide in all charts. Double click: this one only.">'
        f"{buttons}</nav>"
    )


def section_html(section: Section, prefix: str = "", above: str = "") -> str:
    """Return the HTML of a section; `above` is inserted between its text and its panels."""
    panels = "".join(_panel(panel, prefix) for panel in section.panels)
    return (
        f'<section id="{prefix}{section.key}"><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>'
        f'{above}<div class="panels of-{len(section.panels)}">{panels}</div></section>'
    )


def _panel(panel: Panel, prefix: str) -> str:
    chart_place = f'<div class="chart" id="chart-{prefix}{panel.key}"></div>' if panel.curves else ""
    thin = [f"thin line: {CHARGED}"] if panel.has_charged else []
    thin += [f"dashed line: {AVERAGED}"] if panel.has_averaged else []
    caption = _caption([*([f"band: {panel.band}"] if panel.band else []), *thin, *panel.notes])
    kind = "" if panel.curves else ' class="empty"'
    return f"<figure{kind}><h3>{escape(panel.title)}</h3>{chart_place}{caption}</figure>"


def _caption(notes: Sequence[str]) -> str:
    sentences = " ".join(f"{note[0].upper()}{note[1:]}." for note in notes)
    return f"<figcaption>{escape(sentences)}</figcaption>" if notes else ""


def _partitions(maps: Sequence[PartitionMap]) -> str:
    if not maps:
        return ""
    figures = "".join(
        f'<figure><h3>{escape(map_.title)}</h3><div class="chart {"low" if map_.rows is None else "map"}" '
        f'id="chart-{map_.key}"></div>{_caption(map_.notes)}</figure>'
        for map_ in maps
    )
    return (
        f'<section id="partition"><h2>{escape(SECTION_TITLE)}</h2><p>{escape(SECTION_TEXT)}</p>'
        f'<div class="panels of-maps">{figures}</div></section>'
    )


def _summary(groups: Sequence[Group]) -> str:
    heads = ["Group", "Runs", "Training loss", "Test accuracy"]
    heads += [f"{title} cost" for title in KNOB_TITLES.values()]
    rows = [_summary_row(index, row_of(group), heads) for index, group in enumerate(groups)]
    notes = [f"{group.label}: {note}" for group in groups for note in notes_of(group)]
    forms = [group.runs[0].form(knob) for group in groups for knob in KNOB_TITLES]
    totals = " " + _OTHER_FORMS if any(not form.is_average for form in forms) else ""
    listed = f"<ul>{''.join(f'<li>{escape(note)}.</li>' for note in notes)}</ul>" if notes else ""
    return (
        '<section id="summary"><h2>Summary</h2><p>At the end of training; mean ± one standard deviation '
        "where there are several seeds. Costs are averages over iterations and clients of what was really "
        "spent, with their budgets, which hold for each client: below is the client that spent most of its "
        f"own.{totals} Charged, where it differs, is the expected cost λ(q), which the controller holds to "
        f"the budget.</p>{table_html(heads, rows, 'cards')}{listed}</section>"
    )


def _summary_row(index: int, row: Row, heads: Sequence[str]) -> str:
    group = row.group
    cells = [
        group_html(index, group),
        f"{plural(len(group.runs), 'seed')}<small>{plural(group.iterations, 'iteration')}</small>"
        f"<small>{_estimate(row.seconds)} seconds</small>",
        _estimate(row.train_loss),
        _accuracy(row),
        *(_spent(spent) for spent in row.costs.values()),
    ]
    return _named_cells(heads, cells)


def _named_cells(heads: Sequence[str], cells: Sequence[str]) -> str:
    """Return the cells of a row; on a narrow screen each shows its head."""
    named = zip(heads, cells, strict=True)
    return "".join(f'<td data-head="{escape(head)}"><div>{cell}</div></td>' for head, cell in named)


def _estimate(estimate: Estimate | None) -> str:
    return _NOTHING if estimate is None else str(estimate)


def _accuracy(row: Row) -> str:
    averaged = row.average_test_accuracy
    return _estimate(row.test_accuracy) + (f"<small>averaged {averaged}</small>" if averaged else "")


def _spent(spent: AverageCost | None) -> str:
    if spent is None:
        return _NOTHING
    charged = "" if spent.charged is None else f"<small>charged {spent.charged_text}</small>"
    if spent.budget is None:
        return f"{spent.spent_text}{charged}<small>no budget</small>"
    mark = _mark(spent.average, spent.within, spent.budget)
    html = f"{spent.spent_text}<small>of {spent.budget_text} {mark}</small>"
    if spent.charged is not None:
        mark = _mark(spent.charged, spent.charged_within, spent.budget)
        html += f'<small class="wrap">charged {spent.charged_text} (controlled) {mark}</small>'
    if spent.worst is not None:
        html += f'<small class="wrap">worst client: {escape(str(spent.worst))}</small>'
    return html


def _mark(average: Estimate, met: Sequence[bool], budget: float) -> str:
    """Return whether the budget was met, or by how much or how many seeds it was not."""
    within, seeds = sum(met), len(met)
    if within == seeds:
        return '<span class="kept">✓ within</span>'
    over = f"{average.mean / budget:.3g} × budget" if not within else f"{seeds - within} of {seeds} over"
    return f'<span class="broken">✗ {over}</span>'


def _resources(reached: Sequence[Reached], groups: int) -> str:
    """Return the tables of "resources to accuracy", one for each target; their rows follow the groups."""
    if not reached:
        return ""
    tables = []
    for begin in range(0, len(reached), groups):
        rows = reached[begin : begin + groups]
        heads = ["Group", *(heading[0].upper() + heading[1:] for heading in RESOURCES.values())]
        cells = [
            [
                f"{_name(index, row.label)}{f'<small>{escape(row.remark)}</small>' if row.remark else ''}",
                *(row.text(name) for name in RESOURCES),
            ]
            for index, row in enumerate(rows)
        ]
        listed = [_named_cells(heads, row) for row in cells]
        tables.append(f"<h3>Test accuracy {rows[0].target:g}</h3>{table_html(heads, listed, 'cards')}")
    return (
        '<section id="resources"><h2>Resources to accuracy</h2><p>What was used until the first evaluation '
        "with this test accuracy: mean ± one standard deviation over the seeds that reach it. Costs and "
        "bytes are totals over all clients; a broadcast counts once. As a table: "
        f'<a href="{FILE}">{FILE}</a>.</p>{"".join(tables)}</section>'
    )


def runs_html(groups: Sequence[Group], prefix: str = "") -> str:
    """Return the table of all runs with their directories."""
    rows = [
        f"<td>{group_html(index, group)}</td><td>{run.seed}</td><td>{_state(run)}</td>"
        f"<td><code>{escape(str(run.directory))}</code></td>"
        for index, group in enumerate(groups)
        for run in group.runs
    ]
    return (
        f'<section id="{prefix}runs"><h2>Runs</h2><p>Where each curve comes from.</p>'
        f"{table_html(['Group', 'Seed', 'State', 'Directory'], rows, 'plain')}</section>"
    )


def _state(run: Run) -> str:
    done = len(run.iterations["iteration"])
    if run.summary is not None:
        return f"finished, {plural(done, 'iteration')}"
    planned = run.spec["train"].get("iterations", "?")
    return f"unfinished, {done} of {escape(str(planned))} iterations"


def settings_html(groups: Sequence[Group], prefix: str = "") -> str:
    """Return the tables of settings: those that differ between groups, and those in common."""
    settings = [group.settings for group in groups]
    names = differing_settings(settings)
    rows = [
        f"<td><code>{escape(name)}</code></td>"
        + "".join(
            f"<td>{escape(format_setting(each[name])) if name in each else _NOTHING}</td>"
            for each in settings
        )
        for name in names
    ]
    heads = ["Setting", *(group.label for group in groups)]
    different = f"<h3>Different settings</h3>{table_html(heads, rows, 'plain')}" if names else ""
    same = [
        f"<td><code>{escape(name)}</code></td><td>{escape(format_setting(value))}</td>"
        for name, value in settings[0].items()
        if name not in names
    ]
    return (
        f'<section id="{prefix}settings"><h2>Settings</h2>{different}'
        f"{'<h3>Common settings</h3>' if names else ''}"
        f"{table_html(['Setting', 'Value'], same, 'plain')}"
        f"<p>FlexFL {escape(__version__)}; <code>train.seed</code> is in the table of runs.</p></section>"
    )


def table_html(heads: Sequence[str], rows: Sequence[str], kind: str) -> str:
    """Return a table; `rows` are its rows' cells as HTML, `kind` is its CSS class."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
