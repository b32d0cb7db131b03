"""Trackers: observers that a spec names."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from flexfl.results.observer import Progress, RunInfo
from flexfl.results.trackers import CsvTracker


def run_of(path: Path | None, start: int = 0) -> RunInfo:
    return RunInfo(path, clients=3, dim=5, iterations=100, start=start)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def evaluate(tracker: CsvTracker, *iterations: int) -> None:
    for iteration in iterations:
        metrics = {"train_loss": 1.0 / (1 + iteration), "test_accuracy": None}
        tracker.evaluated(Progress(100, iteration), metrics)


def test_a_row_for_each_evaluation(tmp_path: Path) -> None:
    tracker = CsvTracker()
    tracker.begin(run_of(tmp_path))
    evaluate(tracker, 0, 50)
    found = rows(tmp_path / "metrics.csv")
    assert [row["iteration"] for row in found] == ["0", "50"]
    assert list(found[0]) == ["iteration", "seconds", "train_loss", "test_accuracy"]
    assert (float(found[0]["train_loss"]), found[0]["test_accuracy"]) == (1.0, "")


def test_a_resumed_run_drops_what_it_will_do_again(tmp_path: Path) -> None:
    first = CsvTracker("curves/mine.csv")
    first.begin(run_of(tmp_path))
    evaluate(first, 0, 25, 50, 75)
    again = CsvTracker("curves/mine.csv")
    again.begin(run_of(tmp_path, start=50))
    assert [row["iteration"] for row in rows(tmp_path / "curves/mine.csv")] == ["0", "25"]
    evaluate(again, 50, 75, 100)
    found = rows(tmp_path / "curves/mine.csv")
    assert [row["iteration"] for row in found] == ["0", "25", "50", "75", "100"]


def test_a_new_run_starts_a_new_file(tmp_path: Path) -> None:
    for _ in range(2):
        tracker = CsvTracker()
        tracker.begin(run_of(tmp_path))
        evaluate(tracker, 0)
    assert len(rows(tmp_path / "metrics.csv")) == 1


@pytest.mark.parametrize("content", ["", "iteration,seconds\n", "iteration,seconds\n0,0.1\n\n"])
def test_a_file_that_was_cut_short(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.csv").write_text(content, encoding="utf-8")
    tracker = CsvTracker()
    tracker.begin(run_of(tmp_path, start=10))
    evaluate(tracker, 10)
    assert (tmp_path / "metrics.csv").read_text(encoding="utf-8").splitlines()[-1].startswith("10,")


def test_without_a_run_directory_the_path_stands_for_itself(tmp_path: Path) -> None:
    tracker = CsvTracker(str(tmp_path / "here.csv"))
    tracker.begin(run_of(None))
    evaluate(tracker, 0)
    assert len(rows(tmp_path / "here.csv")) == 1
