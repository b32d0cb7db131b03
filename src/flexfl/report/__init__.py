"""Reports: figures and an HTML page from run directories; needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexfl.errors import Fault, InputError
from flexfl.report.figures import write_figures
from flexfl.report.groups import group_runs
from flexfl.report.page import write_page
from flexfl.report.panels import sections_of
from flexfl.report.partition_figure import write_partitions
from flexfl.report.partitions import partition_maps
from flexfl.results import Run
from flexfl.results.files import create_output_folder
from flexfl.results.run import SPEC_FILE, runs_below

__all__ = ["write_report"]


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """Write `report.html` and its figures as PNG files, and return the path of the page.

    Runs that differ only in `train.seed` are drawn as one curve with a band.

    Args:
        directories: The run directories, or folders of them.
        out: The folder to write to.

    Raises:
        InputError: No directory is given.
        RunDirectoryError: A directory holds no run.
    """
    if not directories:
        raise InputError([Fault("directories", "must name at least one run", list(directories))], "report")
    found = [run for directory in directories for run in _runs_in(Path(directory))]
    runs = [Run(directory) for directory in _distinct(found)]
    groups = group_runs(runs)
    sections = sections_of(groups)
    create_output_folder(out)
    maps = partition_maps(groups)
    figures = write_figures(sections, out) + write_partitions(maps, out)
    return write_page(groups, sections, figures, out / "report.html", maps)


def _runs_in(directory: Path) -> list[Path]:
    """Return a run directory itself, else all runs in a folder; else itself, for `Run` to refuse it."""
    if (directory / SPEC_FILE).is_file():
        return [directory]
    return runs_below(directory) or [directory]


def _distinct(directories: Sequence[Path]) -> list[Path]:
    """Return the directories without duplicates: a run given twice is not two seeds."""
    return list({Path(directory).resolve(): Path(directory) for directory in directories}.values())
