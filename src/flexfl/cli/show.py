"""What a person sees in the terminal: the progress line and the closing table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from flexfl.parameters import KNOBS

if TYPE_CHECKING:
    from flexfl.experiments import Cell, Outcome
    from flexfl.report.evidence import Evidence
    from flexfl.results.progress import Live as LiveProgress
    from flexfl.results.progress import Progress as RunProgress

    Shown = RunProgress | LiveProgress

_REFRESH_SECONDS = 0.2
_PLAIN_LINES = 20


class ProgressLine:
    """Live in a terminal; elsewhere (a log, a pipe) some twenty plain lines over the run."""

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

    def update(self, progress: Shown) -> None:
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
        costs = Text("average cost  ", style="dim") + _costs(progress)
        self._live.update(Group(self._bar, _evaluation(progress), costs), refresh=True)


def _evaluation(progress: Shown) -> Text:
    text = Text()
    loss, accuracy = (progress.evaluation.get(name) for name in ("train_loss", "test_accuracy"))
    if loss is not None:
        text.append(f"loss {loss:.3f}  ")
    if accuracy is not None:
        text.append(f"accuracy {accuracy:.3f}  ", style="bold")
    return text


def _costs(progress: Shown) -> Text:
    text = Text()
    for knob, spent in progress.average_cost.items():
        text.append(f"{knob} ")
        text.append_text(_against_budget(spent, progress.budgets.get(knob)))
        text.append("  ")
    return text


def _plain_line(progress: Shown) -> Text:
    return (
        Text(f"iteration {progress.iteration}/{progress.total}  ") + _evaluation(progress) + _costs(progress)
    )


def _against_budget(spent: float, budget: float | None) -> Text:
    if budget is None:
        return Text(f"{spent:.3g}")
    return Text(f"{spent:.3g}", style=_style(spent, budget)) + Text(f"/{budget:.4g}", style="dim")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def show_result(console: Console, summary: dict[str, Any], directory: Path) -> None:
    """The closing table of a run."""
    table = Table(title="average cost of an iteration", title_justify="left", title_style="bold")
    table.add_column("")
    for heading in ("spent", "budget", "spent / budget"):
        table.add_column(heading, justify="right")
    for knob, cost in summary["average_cost"].items():
        budget = cost["budget"]
        share = "no limit" if budget is None else f"{cost['spent'] / budget:.0%}"
        table.add_row(knob, _against_budget(cost["spent"], None), _number(budget), share)
    if summary["test_accuracy"] is not None:
        evaluations = f"the last {summary['recent_evaluations']} evaluations"
        recent = f"{summary['recent_test_accuracy']:.4f} over {evaluations}"
        console.print(f"test accuracy  {summary['test_accuracy']:.4f} ({recent})")
    if summary["train_loss"] is not None:
        console.print(f"training loss  {summary['train_loss']:.4f}")
    pace = summary["seconds"] / max(1, summary["iterations"]) * 1e3
    console.print(
        f"{'iterations':<14} {summary['iterations']} in {summary['seconds']:.1f} s ({pace:.1f} ms each)"
    )
    console.print(table)
    console.print(f"run directory  {directory}", soft_wrap=True)
    console.print(f"look at it     flexfl report {directory}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


class CellLines:
    """One display for many runs: those that run now, and all together; elsewhere a line when one ends."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[told]}", markup=False),
            console=console,
            transient=True,
            refresh_per_second=5,
        )
        self._few = len(cells) <= _PLAIN_LINES  # of many, only those that run are shown
        self._tasks = {
            cell.name: self._bars.add_task(
                cell.name, total=cell.spec.train.iterations, told="waiting", visible=self._few
            )
            for cell in cells
        }
        self._at = dict.fromkeys(self._tasks, 0)
        self._begun: dict[str, int] = {}  # where each was when it was first heard of: not done by us
        self._ended = 0
        self._start = time.monotonic()
        total = sum(cell.spec.train.iterations for cell in cells)
        self._all = self._bars.add_task("all runs", total=total, told="")

    def __enter__(self) -> CellLines:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def update(self, outcome: Outcome) -> None:
        name, told = outcome.cell.name, ""
        if outcome.accuracy is not None:
            told = f"accuracy {outcome.accuracy:.3f}"
        self._at[name] = outcome.iteration
        if outcome.iteration:
            self._begun.setdefault(name, outcome.iteration)
        if outcome.state != "running":
            told = f"{outcome.state}  {told}"
            self._ended += outcome.state != "waiting"  # for another worker
            if not self._console.is_terminal:
                line = f"{name}  {told}" if self._few else f"{name}  {told}  ({self._together()})"
                self._console.print(line, soft_wrap=True)
        self._bars.update(
            self._tasks[name],
            completed=outcome.iteration,
            told=told,
            visible=self._few or outcome.state == "running",
        )
        self._bars.update(self._all, completed=sum(self._at.values()), told=self._together())

    def _together(self) -> str:
        """How many have ended, and how long the rest will take at the pace so far."""
        told = f"{self._ended} of {len(self._tasks)} done"
        done = sum(self._at.values())
        since = done - sum(self._begun.values())
        left = self._bars.tasks[self._all].total
        if since <= 0 or left is None:
            return told
        seconds = (left - done) * (time.monotonic() - self._start) / since
        return f"{told}, {_clock(seconds)} left"


def show_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """The closing table of several runs, with the mean over the seeds of each spec."""
    title = "test accuracy over the last evaluations, up to ten; average cost / budget"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("run")
    for heading in ("accuracy", *KNOBS):
        table.add_column(heading, justify="right", no_wrap=True)
    found: dict[Path, list[float]] = {}
    for outcome in outcomes:
        values = found.setdefault(outcome.cell.out.parent, [])
        if (summary := outcome.summary) is None:
            table.add_row(outcome.cell.name, outcome.state)
            continue
        accuracy = summary["recent_test_accuracy"]
        if accuracy is not None:
            values.append(accuracy)
        costs = [summary["average_cost"][knob] for knob in KNOBS]
        shares = [_against_budget(cost["spent"], cost["budget"]) for cost in costs]
        table.add_row(outcome.cell.name, "–" if accuracy is None else f"{accuracy:.4f}", *shares)
    console.print(table)
    for folder, values in found.items():
        told = ""
        if len(values) > 1:
            told = f"accuracy {mean(values):.4f} ± {stdev(values):.4f} over {len(values)} seeds, "
        console.print(f"{told}runs in {folder}", soft_wrap=True)


def show_evidence(console: Console, evidence: Evidence) -> None:
    """The table beside a figure of the paper, as far as a terminal has room; costs in percent of budget."""
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
        costs = [_share(spent.mean, budget) for spent, budget in row.costs.values()]
        table.add_row(row.label, str(row.accuracy), *firsts, *costs)
    console.print(table)


def _share(spent: float, budget: float | None) -> Text:
    if budget is None:
        return Text(f"{spent:.3g}")
    return Text(f"{spent / budget:.1%}", style=_style(spent, budget))


def _style(spent: float, budget: float) -> str:
    return "green" if spent <= budget else "yellow" if spent <= 1.05 * budget else "red"
