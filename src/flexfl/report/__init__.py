"""Reports: figures and an HTML page from run directories; needs no torch.

from flexfl.report import figure, resources_to_accuracy

picture = figure(["runs/online", "runs/baseline"], x="uplink-bytes", labels=["FlexFL", "baseline"])
picture.savefig("accuracy.pdf")
rows = resources_to_accuracy(["runs/online", "runs/baseline"], [0.7, 0.8])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexfl.errors import Fault, InputError, nearest
from flexfl.report.axes import axis_faults, axis_of
from flexfl.report.figures import draw_row, format_faults, write_figures
from flexfl.report.groups import Group, group_runs
from flexfl.report.labels import relabel
from flexfl.report.page import write_page
from flexfl.report.panels import EVALUATED, evaluated_panel, sections_of
from flexfl.report.partition_figure import write_partitions
from flexfl.report.partitions import partition_maps
from flexfl.report.targets import FILE, Reached, resources_to, target_faults, write_rows
from flexfl.results import Run
from flexfl.results.files import create_output_folder
from flexfl.results.run import SPEC_FILE, runs_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Reached",
    "check_options",
    "figure",
    "reached",
    "read_runs",
    "resources_to_accuracy",
    "write_report",
]


def write_report(
    runs: Sequence[Run | str | Path],
    out: Path,
    *,
    labels: Sequence[str] | None = None,
    x: str = "iteration",
    formats: Sequence[str] = ("png",),
    targets: Sequence[float] = (),
) -> Path:
    """Write `report.html` and its figures, and return the path of the page.

    Runs that differ only in `train.seed` are drawn as one curve with a band.

    Args:
        runs: Runs, run directories, or folders of these.
        out: The folder to write to.
        labels: A label for each group of runs, in the order of their first runs; by default the settings
            in which groups differ.
        x: The x axis of loss and accuracy (`axes.QUANTITIES`).
        formats: The formats of the figures: png, svg, pdf.
        targets: Test accuracies; `resources.csv` and a table on the page say what each group has used until
            it first reached them.

    Raises:
        InputError: No run is given, or an argument has a value that it cannot have.
        RunDirectoryError: A directory holds no run.
    """
    check_options(x=x, formats=formats, targets=targets)
    groups = _groups(runs, labels)
    sections = sections_of(groups, axis_of(x, groups))
    rows = resources_to(groups, targets)
    create_output_folder(out)
    maps = partition_maps(groups)
    kinds = list(dict.fromkeys(formats))
    figures = write_figures(sections, out, kinds) + write_partitions(maps, out, kinds)
    if rows:
        write_rows(out / FILE, [row.plain() for row in rows])
    return write_page(groups, sections, figures, out / "report.html", maps, rows)


def figure(
    runs: Sequence[Run | str | Path],
    *,
    x: str = "iteration",
    y: str | Sequence[str] = "test_accuracy",
    labels: Sequence[str] | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Return a figure of runs for a paper or a notebook, as a matplotlib `Figure`.

    Runs that differ only in `train.seed` are one curve, their mean, with a band of one standard deviation. On
    an x axis on which seeds differ (all but `iteration`), each seed's curve is interpolated linearly, within
    the range that all seeds of the group reach.

    Args:
        runs: Runs, or run directories.
        x: iteration, seconds, bytes, uplink-bytes, downlink-bytes, cost, compute-cost, uplink-cost or
            downlink-cost, each the total from the beginning, over all clients. A broadcast counts once.
            `cost` adds the costs of computing, uplink and downlink, which means something only if they
            have the same unit.
        y: test_accuracy, train_accuracy, train_loss or test_loss; or several, side by side.
        labels: A label for each group of runs, in the order of their first runs; by default the settings
            in which groups differ.
        size: Width and height in inches; by default 4.7 × 3.3 for each panel.

    Returns:
        The figure; `figure.savefig("name.pdf")` writes it, `figure.axes` are there to be changed.

    Raises:
        InputError: There are no runs, or an argument has a value that it cannot have.
        RunDirectoryError: A directory holds no run.
    """
    metrics = [y] if isinstance(y, str) else list(y)
    rule = f"must be one of {', '.join(EVALUATED)}"
    unknown = [metric for metric in metrics or [""] if metric not in EVALUATED]
    _refuse([Fault("y", rule, metric, nearest(metric, EVALUATED)) for metric in unknown] + axis_faults(x))
    groups = _groups(runs, labels)
    axis = axis_of(x, groups)
    panels = [evaluated_panel(groups, metric, axis) for metric in metrics]
    return draw_row(panels, size)


def resources_to_accuracy(
    runs: Sequence[Run | str | Path], targets: Sequence[float], *, labels: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return what runs have used until they first reached a test accuracy, as rows for a table.

    Args:
        runs: Runs, or run directories.
        targets: Test accuracies in (0, 1].
        labels: A label for each group of runs, as for `figure`.

    Returns:
        A row for each target and group: `group`, `target`, `seeds`, `seeds_that_reach`, `best_accuracy`, and
        `iterations`, `compute_cost`, `uplink_cost`, `downlink_cost`, `uplink_bytes`, `downlink_bytes` and
        `seconds`, totals over all clients, each as the mean over the seeds that reach the target and with its
        deviation (`iterations_deviation`, …); None if no seed does.

    Raises:
        InputError: There are no runs, a target is not in (0, 1], or labels do not fit.
        RunDirectoryError: A directory holds no run.
    """
    return [row.plain() for row in reached(runs, targets, labels=labels)]


def reached(
    runs: Sequence[Run | str | Path], targets: Sequence[float], *, labels: Sequence[str] | None = None
) -> list[Reached]:
    """Return the rows of `resources_to_accuracy` as objects that can be shown as text."""
    _refuse(target_faults(targets))
    return resources_to(_groups(runs, labels), targets)


def check_options(*, x: str, formats: Sequence[str], targets: Sequence[float]) -> None:
    """Raise InputError with all faults of these arguments of `write_report`, before any run is read."""
    _refuse(axis_faults(x) + format_faults(formats) + target_faults(targets))


def _refuse(faults: Sequence[Fault]) -> None:
    if faults:
        raise InputError(faults, "the report")


def _runs_in(directory: Path) -> list[Path]:
    """Return a run directory itself, else all runs in a folder; else itself, for `Run` to refuse it."""
    if (directory / SPEC_FILE).is_file():
        return [directory]
    return runs_below(directory) or [directory]


def read_runs(runs: Sequence[Run | str | Path]) -> list[Run]:
    """Return runs, read from their directories or folders of them, without duplicates.

    A run that is given twice is not two seeds.

    Raises:
        InputError: There is none.
        RunDirectoryError: A directory holds no run.
    """
    if not runs:
        raise InputError([Fault("directories", "must name at least one run", list(runs))], "report")
    read = [
        run
        for given in runs
        for run in ([given] if isinstance(given, Run) else map(Run, _runs_in(Path(given))))
    ]
    return list({run.directory.resolve(): run for run in read}.values())


def _groups(runs: Sequence[Run | str | Path], labels: Sequence[str] | None) -> tuple[Group, ...]:
    return relabel(group_runs(read_runs(runs)), labels)
