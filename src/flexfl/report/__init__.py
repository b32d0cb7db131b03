"""Figures and a page of one or more runs; reads run directories only, needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexfl.errors import Fault, InputError
from flexfl.report.catalogue import sections_of
from flexfl.report.figures import write_figures
from flexfl.report.groups import group_runs
from flexfl.report.page import write_page
from flexfl.report.partition_figure import write_partitions
from flexfl.report.partitions import maps_of
from flexfl.results import Run
from flexfl.results.folder import make_folder

__all__ = ["write_report"]


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """Write `report.html` and its figures as PNG files into `out`; returns the page's path.

    Runs that differ in nothing but `train.seed` are drawn as one curve with a band.
    """
    if not directories:
        raise InputError([Fault("directories", "must name at least one run", list(directories))], "report")
    runs = [Run(directory) for directory in _distinct(directories)]
    groups = group_runs(runs)
    sections = sections_of(groups)
    make_folder(out)
    maps = maps_of(groups)
    figures = write_figures(sections, out) + write_partitions(maps, out)
    return write_page(groups, sections, figures, out / "report.html", maps)


def _distinct(directories: Sequence[Path]) -> list[Path]:
    """Each directory once: a run that is named twice is not two seeds."""
    return list({Path(directory).resolve(): Path(directory) for directory in directories}.values())
