"""Terminal output: progress displays and final tables."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from flexfl.cli.spending import CostColumn, join_texts, progress_texts, share_text
from flexfl.parameters import KNOBS
from flexfl.results.observer import Observer
from flexfl.units import show

if TYPE_CHECKING:
    from flexfl.cli.spending import AnyProgress
    from flexfl.experiments import Cell, Outcome
    from flexfl.report.evidence import Evidence
    from flexfl.results.observer import Progress as RunProgress
    from flexfl.results.observer import RunInfo
    from flexfl.spec.schema import Spec

_REFRESH_SECONDS = 0.2
_PLAIN_LINES = 20


class ProgressLine(Observer):
    """The progress of one run: a live display in a terminal, else (log, pipe) about twenty plain lines."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[left]}"),
        )
        self._task = self._bar.add_task("", total=total, left="")
        self._live = Live(self._bar, console=console, auto_refresh=False, transient=True)
        self._shown = 0.0
        self._every = max(1, total // _PLAIN_LINES)

    def __enter__(self) -> ProgressLine:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def begin(self, run: RunInfo) -> None:
        _show_notes(self._console, run.notes)

    def iteration(self, progress: RunProgress, record: Mapping[str, Any]) -> None:
        self.update(progress)

    def end(self, progress: RunProgress, summary: Mapping[str, Any]) -> None:
        self.update(progress)

    def update(self, progress: AnyProgress) -> None:
        """Show the progress, at most every `_REFRESH_SECONDS`."""
        if not self._console.is_terminal:
            if progress.iteration // self._every > self._shown // self._every:
                self._shown = progress.iteration
                self._console.print(_plain_line(progress), soft_wrap=True)
            return
        now = time.monotonic()
        if now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        left = progress.seconds_left
        self._bar.update(
            self._task,
            completed=progress.iteration,
            left="" if left is None else f"{_clock(left)} left",
        )
        averages = all(form.is_average for form in progress.forms.values())
        label = Text("average cost" if averages else "spent", style="dim")
        costs = join_texts([label, *progress_texts(progress)], self._console.width)
        self._live.update(Group(self._bar, _timed(progress) + _evaluation(progress), costs), refresh=True)


def show_notes(console: Console, specs: Sequence[Spec]) -> None:
    """Print what runs will do that their settings do not show, each note once."""
    _show_notes(console, dict.fromkeys(note for spec in specs for note in spec.notes()))


def _show_notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)


def _evaluation(progress: AnyProgress) -> Text:
    text = Text()
    names = "train_loss", "test_accuracy", "average_test_accuracy"
    loss, accuracy, averaged = (progress.evaluation.get(name) for name in names)
    if loss is not None:
        text.append(f"loss {loss:.3f}  ")
    if accuracy is not None:
        text.append(f"accuracy {accuracy:.3f}  ", style="bold")
    if averaged is not None:
        text.append(f"averaged {averaged:.3f}  ", style="bold")
    return text


def _timed(progress: AnyProgress) -> Text:
    """Return how long the run has lasted by its clock; nothing without one."""
    clock = getattr(progress, "clock", math.nan)
    return Text(f"clock {show(clock, 'second')}  " if clock > 0 else "")


def _plain_line(progress: AnyProgress) -> Text:
    begun = Text(f"iteration {progress.iteration}/{progress.total}  ")
    text = begun + _timed(progress) + _evaluation(progress)
    for costs in progress_texts(progress):
        text += costs + Text("  ")
    return text


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def show_result(console: Console, summary: dict[str, Any], directory: Path) -> None:
    """Print the final table of a run."""
    from flexfl.cli.tables import show_costs, verdict

    if summary["test_accuracy"] is not None:
        evaluations = f"the last {summary['recent_evaluations']} evaluations"
        recent = f"{summary['recent_test_accuracy']:.4f} over {evaluations}"
        console.print(f"test accuracy  {summary['test_accuracy']:.4f} ({recent})")
    if summary["average_test_accuracy"] is not None:
        console.print(f"averaged model {summary['average_test_accuracy']:.4f} test accuracy")
    if summary["train_loss"] is not None:
        console.print(f"training loss  {summary['train_loss']:.4f}")
    if summary["learning_rate"] is not None:
        console.print(f"learning rate  {summary['learning_rate']:.4g} in the last iteration")
    pace = summary["seconds"] / max(1, summary["iterations"]) * 1e3
    console.print(
        f"{'iterations':<14} {summary['iterations']} in {summary['seconds']:.1f} s ({pace:.1f} ms each)"
    )
    if "clock" in summary:
        lasted, hourly = show(summary["clock"], "second"), summary["iterations_per_hour"]
        console.print(f"{'clock':<14} {lasted} ({hourly:.4g} iterations an hour)")
    costs = summary["average_cost"]
    show_costs(console, costs, summary.get("joint_budgets"), iterations=summary["iterations"])
    if words := verdict(costs):
        console.print(words, soft_wrap=True)
    console.print(f"run directory  {directory}", soft_wrap=True)
    console.print(f"report         flexfl report {directory}", soft_wrap=True)


class CellLines:
    """The progress of many runs: a live display in a terminal, else a plain line whenever a run ends."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[status]}", markup=False),
            console=console,
            transient=True,
            refresh_per_second=5,
        )
        self._few = len(cells) <= _PLAIN_LINES  # with more, only running cells are shown
        self._tasks = {
            cell.name: self._bars.add_task(
                cell.name, total=cell.spec.train.iterations, status="waiting", visible=self._few
            )
            for cell in cells
        }
        self._iterations = dict.fromkeys(self._tasks, 0)
        self._first_seen: dict[str, int] = {}  # the first iteration reported; resumed runs start above 0
        self._ended = 0
        self._start = time.monotonic()
        total = sum(cell.spec.train.iterations for cell in cells)
        self._all = self._bars.add_task("all runs", total=total, status="")

    def __enter__(self) -> CellLines:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def update(self, outcome: Outcome) -> None:
        """Show the new state of a cell."""
        name, status = outcome.cell.name, ""
        if outcome.accuracy is not None:
            status = f"accuracy {outcome.accuracy:.3f}"
        self._iterations[name] = outcome.iteration
        if outcome.iteration:
            self._first_seen.setdefault(name, outcome.iteration)
        if outcome.state != "running":
            status = f"{outcome.state}  {status}"
            self._ended += outcome.state != "waiting"  # a retried cell waits again
            if not self._console.is_terminal:
                line = f"{name}  {status}" if self._few else f"{name}  {status}  ({self._overall_status()})"
                self._console.print(line, soft_wrap=True)
        self._bars.update(
            self._tasks[name],
            completed=outcome.iteration,
            status=status,
            visible=self._few or outcome.state == "running",
        )
        completed = sum(self._iterations.values())
        self._bars.update(self._all, completed=completed, status=self._overall_status())

    def _overall_status(self) -> str:
        """Return how many runs have ended, and the estimated time left."""
        status = f"{self._ended} of {len(self._tasks)} done"
        completed = sum(self._iterations.values())
        computed = completed - sum(self._first_seen.values())
        total = self._bars.tasks[self._all].total
        if computed <= 0 or total is None:
            return status
        seconds = (total - completed) * (time.monotonic() - self._start) / computed
        return f"{status}, {_clock(seconds)} left"


def show_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the final table of many runs, with the mean over the seeds of each spec."""
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    columns = {knob: CostColumn([summary["average_cost"][knob] for summary in summaries]) for knob in KNOBS}
    plain = all(column.is_plain for column in columns.values())
    costs_are = "average cost / budget" if plain else "spent of budget"
    title = f"mean test accuracy of the last (up to ten) evaluations; {costs_are}"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("run")
    for heading in ("accuracy", *(f"{knob}\n{column.period}".strip() for knob, column in columns.items())):
        table.add_column(heading, justify="right", no_wrap=True)
    accuracies: dict[Path, list[float]] = {}
    for outcome in outcomes:
        values = accuracies.setdefault(outcome.cell.out.parent, [])
        if (summary := outcome.summary) is None:
            table.add_row(outcome.cell.name, outcome.state)
            continue
        accuracy = summary["recent_test_accuracy"]
        if accuracy is not None:
            values.append(accuracy)
        costs = summary["average_cost"]
        shares = [column.cell(costs[knob], summary["iterations"]) for knob, column in columns.items()]
        table.add_row(outcome.cell.name, "–" if accuracy is None else f"{accuracy:.4f}", *shares)
    console.print(table)
    for line in [*_charged_lines(outcomes), *_worst_of_all(outcomes)]:
        console.print(line, soft_wrap=True)
    for folder, values in accuracies.items():
        statistics = ""
        if len(values) > 1:
            statistics = f"accuracy {mean(values):.4f} ± {stdev(values):.4f} over {len(values)} seeds, "
        console.print(f"{statistics}runs in {folder}", soft_wrap=True)


def _charged_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each knob that was charged something else than was spent on it."""
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    lines = []
    for knob in KNOBS:
        costs = [summary["average_cost"][knob] for summary in summaries]
        charged = [cost["charged"] for cost in costs if not cost["agree"]]
        if charged:
            where = f"in {len(charged)} of {len(costs)} runs"
            units = {cost.get("unit", "") for cost in costs}
            average = show(mean(charged), units.pop() if len(units) == 1 else "")
            what = f"charged {average} on average, the expected cost, which is what is controlled"
            lines.append(f"{knob} {where}: {what}")
    return lines


def _worst_of_all(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line on the client that has spent the largest share of a budget, and in which run."""
    from flexfl.results.accounts import share

    entries = [
        (share(cost["worst"]["spent"]), knob, cost["worst"]["spent"]["who"], outcome.cell.name)
        for outcome in outcomes
        if outcome.summary is not None
        for knob, cost in outcome.summary["average_cost"].items()
        if cost["worst"]
    ]
    if not entries:
        return []
    most, knob, who, run = max(entries)
    return [f"worst client: {who} of {run} has spent {most:.0%} of its {knob} budget"]


def show_evidence(console: Console, evidence: Evidence) -> None:
    """Print the main columns of a figure's table; costs in percent of the budget."""
    seeds = sorted({row.seeds for row in evidence.rows})
    title = f"{evidence.title}, {'–'.join(map(str, seeds))} seed{'s' if seeds != [1] else ''}"
    console.print(title, style="bold", soft_wrap=True)
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    reached = [f"≥ {target:.2f}" for target in evidence.targets]
    for heading in ("accuracy", *reached, *KNOBS):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in evidence.rows:
        firsts = ["–" if first is None else f"{first.mean:.0f}" for first, _ in row.reached.values()]
        costs = [
            share_text(spent.mean, budget, row.units[knob]) for knob, (spent, budget) in row.costs.items()
        ]
        table.add_row(row.label, str(row.accuracy), *firsts, *costs)
    console.print(table)
