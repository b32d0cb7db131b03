"""A figure of the paper and its table: methods averaged over seeds, written as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flexfl.arrays import FloatArray
from flexfl.parameters import KNOBS
from flexfl.report.curves import Curve, align
from flexfl.report.figures import write_overview
from flexfl.report.groups import Group, group_of
from flexfl.report.panels import Panel, Section, overview_panels, sections_of
from flexfl.report.summary import Estimate
from flexfl.report.targets import estimate, first_reaching, write_rows
from flexfl.results import Run
from flexfl.results.files import create_output_folder
from flexfl.units import show

# The paper's titles.
_TITLES = {
    "train_loss": "Training loss",
    "test_accuracy": "Test accuracy",
    "compute_cost": "Average computation cost",
    "uplink_cost": "Average client communication cost",
    "downlink_cost": "Average server communication cost",
}
# The y range ignores methods far from the best one: others would be hard to tell apart.
_FAR_BELOW = 0.5
_FAR_ABOVE = 5.0
_SETTLED = 0.05


@dataclass(frozen=True)
class Method:
    """One curve; its runs differ only in the seed."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Evidence:
    """One figure; for each accuracy in `targets` the table has the first iteration that reached it."""

    key: str
    title: str
    methods: tuple[Method, ...]
    targets: tuple[float, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """A group for each method."""
        return tuple(group_of(method.label, method.runs) for method in self.methods)

    @cached_property
    def section(self) -> Section:
        """The figure's panels."""
        panels = overview_panels(sections_of(self.groups))
        named = [replace(panel, title=_TITLES[panel.key]) for panel in panels]
        named = [_ZOOMS[panel.key](panel) if panel.key in _ZOOMS else panel for panel in named]
        text = "Costs are averages from the first iteration up to this one; the dashed line is the budget."
        return Section(self.key, self.title, text, tuple(named))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The table's rows, one for each method."""
        return tuple(_row(method, self.targets) for method in self.methods)

    def write(self, out: Path) -> list[Path]:
        """Write KEY.png, KEY.svg, KEY.csv and KEY.md (the table), KEY-curves.csv (every evaluation).

        Returns:
            The files written.
        """
        create_output_folder(out, "--results")
        pictures = [out / f"{self.key}.{kind}" for kind in ("png", "svg")]
        for path in pictures:
            write_overview(self.section.panels, path)
        table, curves = out / f"{self.key}.csv", out / f"{self.key}-curves.csv"
        write_rows(table, [row.plain() for row in self.rows])
        write_rows(curves, [point for method in self.methods for point in _points(method)])
        text = out / f"{self.key}.md"
        text.write_text(_markdown(self.rows, self.targets), encoding="utf-8")
        return [*pictures, table, curves, text]


@dataclass(frozen=True)
class Row:
    """One method in the table.

    Attributes:
        accuracy: Mean test accuracy of the last ten evaluations.
        reached: For each target, the first iteration that reached it, over the seeds that did, and
            the number of these seeds.
        costs: For each knob, average cost and budget.
        units: What the costs of each knob are counted in; "" for abstract costs.
    """

    label: str
    seeds: int
    iterations: int
    accuracy: Estimate
    train_loss: Estimate
    reached: dict[float, tuple[Estimate | None, int]]
    costs: dict[str, tuple[Estimate, float | None]]
    units: dict[str, str]
    seconds: Estimate

    def plain(self) -> dict[str, Any]:
        """Return the row's columns in the CSV file."""
        out: dict[str, Any] = {"method": self.label, "seeds": self.seeds, "iterations": self.iterations}
        out |= _columns("accuracy", self.accuracy) | _columns("train_loss", self.train_loss)
        for target, (first, count) in self.reached.items():
            out |= _columns(f"iterations_to_{target:.2f}", first) | {f"seeds_that_reach_{target:.2f}": count}
        for knob, (spent, budget) in self.costs.items():
            out |= _columns(f"{knob}_cost", spent) | {f"{knob}_budget": budget}
        return out | _columns("seconds", self.seconds)


def _row(method: Method, targets: Sequence[float]) -> Row:
    summaries = [summary for run in method.runs if (summary := run.summary) is not None]
    reached = {}
    for target in targets:
        firsts = [
            float(run.evaluations["iteration"][place])
            for run in method.runs
            if (place := first_reaching(run, target)) is not None
        ]
        reached[target] = (estimate(firsts) if firsts else None, len(firsts))
    costs = {
        knob: (
            estimate([summary["average_cost"][knob]["spent"] for summary in summaries]),
            summaries[0]["average_cost"][knob]["budget"],
        )
        for knob in KNOBS
    }
    return Row(
        label=method.label,
        seeds=len(summaries),
        iterations=min(summary["iterations"] for summary in summaries),
        accuracy=estimate([summary["recent_test_accuracy"] for summary in summaries]),
        train_loss=estimate([summary["train_loss"] for summary in summaries]),
        reached=reached,
        costs=costs,
        units={knob: method.runs[0].units.get(knob, "") for knob in KNOBS},
        seconds=estimate([summary["seconds"] for summary in summaries]),
    )


def _points(method: Method) -> Iterator[dict[str, Any]]:
    """Yield mean and deviation over seeds at every evaluation, with the average costs up to it."""
    columns: dict[str, tuple[FloatArray, FloatArray]] = {
        name: align([(run.evaluations["iteration"], run.evaluations[name]) for run in method.runs])
        for name in ("train_loss", "test_accuracy")
    }
    for knob in KNOBS:  # evaluation n follows n iterations, whose last is n − 1
        series = [(run.iterations["iteration"] + 1, run.average_cost(knob)) for run in method.runs]
        columns[f"{knob}_cost"] = align(series)
    for iteration in columns["test_accuracy"][0]:
        point: dict[str, Any] = {"method": method.label, "iteration": int(iteration)}
        for name, (x, values) in columns.items():
            column = values[:, x == iteration][:, 0] if iteration in x else None
            point |= _columns(name, None if column is None else estimate(column.tolist()))
        yield point


def _columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {
        name: None if estimate is None else _digits(estimate.mean),
        f"{name}_deviation": None if estimate is None else _digits(estimate.deviation),
    }


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _markdown(rows: Sequence[Row], targets: Sequence[float]) -> str:
    """Return the table as Markdown; costs in percent of their budgets."""
    reached = [f"iterations to {target:.2f}" for target in targets]
    heads = ["method", "seeds", "final accuracy", "training loss", *reached]
    heads += ["computation", "client comm.", "server comm.", "seconds"]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        firsts = [
            "–" if first is None else f"{first}" + (f" ({count} of {row.seeds})" if count < row.seeds else "")
            for first, count in row.reached.values()
        ]
        costs = [
            show(spent.mean, row.units[knob], 4) if budget is None else f"{100 * spent.mean / budget:.1f} %"
            for knob, (spent, budget) in row.costs.items()
        ]
        cells = [row.label, str(row.seeds), str(row.accuracy), str(row.train_loss), *firsts, *costs]
        lines.append([*cells, f"{row.seconds.mean:.0f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def zoom_accuracy(panel: Panel) -> Panel:
    """Fit the y range to the best curves; a note names those far below."""
    best = max(float(curve.mean[-1]) for curve in panel.curves)
    below = [curve for curve in panel.curves if curve.mean[-1] < _FAR_BELOW * best]
    inside = [curve for curve in panel.curves if curve not in below]
    starts = [float(curve.mean[curve.x >= _SETTLED * curve.x[-1]].min()) for curve in inside]
    low = max(0.0, min(starts) - 0.05)
    top = max(float(curve.highest.max()) for curve in inside)
    off = [curve for curve in below if curve.mean[-1] < low]
    note = [f"{curve.label} is below (ends at {curve.mean[-1]:.2f})" for curve in off]
    return _with_range(panel, off, (low, top + 0.05 * (top - low)), note)


def _zoom_loss(panel: Panel) -> Panel:
    """Fit the y range to the lowest losses; a note names those that stay far above."""
    best = min(float(curve.mean[-1]) for curve in panel.curves)
    above = [curve for curve in panel.curves if curve.mean[-1] > _FAR_ABOVE * best]
    inside = [curve for curve in panel.curves if curve not in above]
    top = max(float(curve.mean[curve.x >= 0.5 * _SETTLED * curve.x[-1]].max()) for curve in inside)
    off = [curve for curve in above if curve.mean[-1] > 1.1 * top]
    note = [f"{curve.label} is above (ends at {curve.mean[-1]:.3g})" for curve in off]
    return _with_range(panel, off, (0.0, 1.1 * top), note)


def _with_range(
    panel: Panel, off: Sequence[Curve], y_range: tuple[float, float], notes: Sequence[str]
) -> Panel:
    """Set the y range; curves `off` it keep their lines, for zooming out, but not their bands."""
    curves = tuple(replace(curve, low=None, high=None) if curve in off else curve for curve in panel.curves)
    return replace(panel, y_range=y_range, curves=curves, notes=(*panel.notes, *notes))


_ZOOMS = {"test_accuracy": zoom_accuracy, "train_loss": _zoom_loss}
