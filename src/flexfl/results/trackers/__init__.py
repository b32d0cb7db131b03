"""Trackers: observers that a spec can name, one file each."""

from flexfl.registry import Family
from flexfl.results.trackers.csv import CsvTracker

TRACKERS = Family("tracker", {"csv": CsvTracker})

__all__ = ["TRACKERS", "CsvTracker"]
