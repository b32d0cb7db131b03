"""A frontier as files: the table, the picture, and one HTML page with both, which can be read closely."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from flexfl.parameters import KNOBS
from flexfl.report.frontier import STEM, Frontier, budget_axes, cheapest_text, smallest_text
from flexfl.report.frontier_cells import Point
from flexfl.report.frontier_charts import curve_chart, map_chart, spent_chart
from flexfl.report.frontier_figure import write_picture
from flexfl.report.frontier_panels import FRONT_NOTE, map_panels, spent_panels
from flexfl.report.groups import Group, group_of
from flexfl.report.page import plural, settings_html, table_html, write_document
from flexfl.results.files import create_output_folder
from flexfl.units import show

_NOTHING = "–"


def write_frontier(frontier: Frontier, out: Path, formats: Sequence[str] = ("png",)) -> Path:
    """Write the table (CSV and JSON), the picture and the page, and return the path of the page.

    Args:
        frontier: The results.
        out: The folder to write to.
        formats: The formats of the picture: png, svg, pdf.
    """
    create_output_folder(out)
    pictures = write_picture(frontier, out, formats)
    tables = [path.name for path in frontier.write(out)]
    figures, charts = _figures(frontier)
    body = [
        _header(frontier, [*pictures, *tables]),
        _cheapest(frontier),
        f'<section id="charts-of-cells"><h2>Accuracy and budgets</h2>{figures}</section>',
        _table(frontier),
        _runs(frontier),
    ]
    return write_document(f"FlexFL frontier: {frontier.name}", body, charts, out / f"{STEM}.html")


def _header(frontier: Frontier, files: Sequence[str]) -> str:
    runs = sum(len(point.runs) for point in frontier.points)
    varied = " × ".join(f"<code>{escape(axis.field)}</code>" for axis in frontier.axes)
    over = f'<p class="broken">{escape(frontier.over)}.</p>' if frontier.over else ""
    links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in files)
    return (
        f"<header><h1>What a budget buys: {escape(frontier.name)}</h1><p>{varied}: "
        f"{plural(len(frontier.points), 'cell')}, {plural(runs, 'run')}. Files: {links}.</p>{over}"
        "<noscript><p>The charts need JavaScript; the picture shows the same.</p></noscript></header>"
    )


def _cheapest(frontier: Frontier) -> str:
    if not frontier.targets:
        return ""
    parts = []
    for target in frontier.targets:
        lines = []
        for number in budget_axes(frontier):
            smallest = smallest_text(frontier, target, number)
            more = f"; {escape(smallest)}" if smallest else ""
            text = f"{escape(cheapest_text(frontier, target, number))}{more}"
            lines.append(f"<li><code>{escape(frontier.axes[number].field)}</code>: {text}.</li>")
        parts.append(f"<h3>Test accuracy {target:g}</h3><ul>{''.join(lines)}</ul>")
    return (
        '<section id="cheapest"><h2>The cheapest budget</h2><p>Who has more may spend less, so an accuracy '
        "counts as reached by every budget that is no smaller than that of a cell which reached it. Between "
        "two values tried it is taken as linear in the logarithm of the budget. In parentheses: the best "
        f"mean accuracy up to that budget.</p>{''.join(parts)}</section>"
    )


def _figures(frontier: Frontier) -> tuple[str, dict[str, Any]]:
    """Return the charts' places as HTML, and the charts."""
    charts: dict[str, Any] = {}
    figures = []
    for panel in map_panels(frontier):
        charts[panel.key] = map_chart(panel, frontier)
        note = f"{panel.note}; at the border less might do" if panel.lines else panel.note
        figures.append(_figure(panel.key, panel.title or "What they buy", note, "chart map"))
    if not figures:
        charts["curve"] = curve_chart(frontier)
        note = "band: ± one deviation over seeds; thin line: the best up to that budget; hollow: over budget"
        figures.append(_figure("curve", "What it buys", note, "chart map"))
    for spent in spent_panels(frontier):
        key = f"spent-{spent.knob}"
        charts[key] = spent_chart(spent, frontier)
        note = f"{FRONT_NOTE}: no other cell is as accurate for less, counting {_listed(frontier.knobs)}"
        figures.append(_figure(key, f"What it spends on {spent.knob}", note, "chart map"))
    return f'<div class="panels">{"".join(figures)}</div>', charts


def _listed(knobs: Sequence[str]) -> str:
    return " and ".join([", ".join(knobs[:-1])] * (len(knobs) > 1) + [knobs[-1]])


def _figure(key: str, title: str, note: str, kind: str) -> str:
    caption = f"<figcaption>{escape(note[0].upper() + note[1:])}.</figcaption>" if note else ""
    return f'<figure><h3>{escape(title)}</h3><div class="{kind}" id="chart-{key}"></div>{caption}</figure>'


def _table(frontier: Frontier) -> str:
    heads = [
        "Cell",
        "Test accuracy",
        *(f"{knob[0].upper()}{knob[1:]} cost" for knob in KNOBS),
        "Worst client",
    ]
    rows = []
    for point, front in zip(frontier.points, frontier.front, strict=True):
        mark = '<small class="broken">! over budget</small>' if point.is_over else ""
        mark += '<small class="kept">on the Pareto front</small>' if front else ""
        cells = [
            f"{escape(point.label)}<small>{plural(len(point.runs), 'seed')}</small>",
            f"{point.text}{mark}",
            *(_spent(point, knob) for knob in KNOBS),
            _worst(point),
        ]
        named = zip(heads, cells, strict=True)
        rows.append("".join(f'<td data-head="{escape(h)}"><div>{cell}</div></td>' for h, cell in named))
    return (
        '<section id="cells"><h2>Cells</h2><p>Accuracy is the mean of the last ten evaluations, as far as '
        "they are in the last fifth of the run; ± one standard deviation over seeds. Costs are what was "
        f"really spent in an iteration, on average.</p>{table_html(heads, rows, 'cards')}</section>"
    )


def _spent(point: Point, knob: str) -> str:
    spent, budget = point.spent(knob), point.budget(knob)
    if spent is None:
        return _NOTHING
    amount = show(spent.mean, point.unit(knob), 4)
    if not budget:
        return f"{amount}<small>no budget</small>"
    kind = "kept" if spent.mean <= budget * (1 + 1e-9) else "broken"
    of = f"of {show(budget, point.unit(knob), 4)}"
    return f'{amount}<small>{of}, <span class="{kind}">{spent.mean / budget:.1%}</span></small>'


def _worst(point: Point) -> str:
    if (worst := point.worst) is None:
        return _NOTHING
    who = f"{escape(worst.who)}, seed {worst.seed}"
    return f"{worst.share:.0%} of {worst.knob}<small>{who}</small>"


def _runs(frontier: Frontier) -> str:
    """Return where the runs are stored, and the settings that all have in common, as a folded block."""
    rows = [
        f"<td>{escape(point.label)}</td><td>{run.seed}</td><td><code>{escape(str(run.directory))}</code></td>"
        for point in frontier.points
        for run in point.runs
    ]
    first = next((point.runs for point in frontier.points if point.runs), None)
    settings = "" if first is None else settings_html([_in_common(frontier, group_of("all cells", first))])
    table = table_html(["Cell", "Seed", "Directory"], rows, "plain")
    return (
        "<details><summary>Runs and settings</summary>"
        f'<section id="runs"><h2>Runs</h2>{table}</section>'
        f"{settings}</details>"
    )


def _in_common(frontier: Frontier, group: Group) -> Group:
    varied = {axis.field for axis in frontier.axes}
    kept = {name: value for name, value in group.settings.items() if name not in varied}
    return Group(group.label, group.runs, kept)
