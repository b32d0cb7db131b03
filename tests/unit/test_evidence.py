"""A figure of a paper: the numbers of its table, its files, its page."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from flexfl.report.evidence import Evidence, Method
from flexfl.report.evidence_page import write_evidence
from flexfl.results import Run
from runs import write_run

ACCURACIES = {1: [0.1, 0.4, 0.7, 0.6, 0.9], 2: [0.2, 0.5, 0.4, 0.8, 0.7]}


def runs(
    folder: Path, seeds: tuple[int, ...] = (1, 2), shift: float = 0.0, cost: float = 0.1
) -> tuple[Run, ...]:
    """Evaluated at 0, 5, 10, 15 and 20."""
    made = []
    for seed in seeds:
        evaluations = {
            5 * place: {"train_loss": 2.0 - place / 4, "test_accuracy": value - shift, "seconds": 3.0 * place}
            for place, value in enumerate(ACCURACIES[seed])
        }
        path = write_run(folder / f"seed-{seed}", seed=seed, evaluations=evaluations, cost=cost)
        made.append(Run(path))
    return tuple(made)


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    methods = (
        Method("Proposed", runs(tmp_path / "a")),
        Method("Baseline <1>", runs(tmp_path / "b", shift=0.35)),
    )
    return Evidence("fig1", "Figure 1", methods, (0.6, 0.85))


def test_the_table(evidence: Evidence) -> None:
    proposed, baseline = evidence.rows
    finals = [np.mean(ACCURACIES[seed]) for seed in (1, 2)]  # five evaluations, fewer than ten
    assert proposed.accuracy.mean == pytest.approx(np.mean(finals))
    assert proposed.accuracy.deviation == pytest.approx(np.std(finals, ddof=1))
    assert baseline.accuracy.mean == pytest.approx(np.mean(finals) - 0.35)
    first, count = proposed.reached[0.6]
    assert (first.mean, count) == (12.5, 2)  # at 10 and at 15
    assert first.deviation == pytest.approx(np.std([10, 15], ddof=1))
    first, count = proposed.reached[0.85]
    assert (first.mean, first.deviation, count) == (20.0, None, 1)
    assert baseline.reached == {0.6: (None, 0), 0.85: (None, 0)}
    spent, budget = proposed.costs["compute"]
    assert budget == 0.25
    assert spent.mean == pytest.approx(Run(evidence.methods[0].runs[0].directory).average_cost("compute")[-1])
    assert (proposed.seeds, proposed.iterations, proposed.seconds.mean) == (2, 20, 15.0)


def test_a_shorter_view_of_the_same_runs(tmp_path: Path) -> None:
    whole = runs(tmp_path)
    cut = tuple(Run(run.directory, until=10) for run in whole)
    (row,) = Evidence("fig1", "", (Method("m", cut),), (0.6,)).rows
    assert row.iterations == 10
    assert row.accuracy.mean == pytest.approx(np.mean([ACCURACIES[1][:3], ACCURACIES[2][:3]]))
    assert row.seconds.mean == 6.0
    assert row.reached[0.6][1] == 1


def test_files(evidence: Evidence, tmp_path: Path) -> None:
    names = [path.name for path in evidence.write(tmp_path / "out")]
    assert names == ["fig1.png", "fig1.svg", "fig1.csv", "fig1-curves.csv", "fig1.md"]
    assert imread(tmp_path / "out" / "fig1.png").ndim == 3
    assert (tmp_path / "out" / "fig1.svg").read_text().count("<svg") == 1
    with (tmp_path / "out" / "fig1.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["method"] for row in table] == ["Proposed", "Baseline <1>"]
    assert float(table[0]["iterations_to_0.60"]) == 12.5
    assert table[1]["iterations_to_0.60"] == ""
    assert table[0]["seeds_that_reach_0.85"] == "1"
    assert float(table[0]["uplink_budget"]) == 0.01
    with (tmp_path / "out" / "fig1-curves.csv").open() as file:
        points = list(csv.DictReader(file))
    assert len(points) == 2 * 5
    at_10 = next(p for p in points if (p["method"], p["iteration"]) == ("Proposed", "10"))
    assert float(at_10["test_accuracy"]) == pytest.approx(0.55)
    assert float(at_10["test_accuracy_deviation"]) == pytest.approx(np.std([0.7, 0.4], ddof=1))
    # The average over the ten iterations that come before this evaluation.
    assert float(at_10["downlink_cost"]) == pytest.approx(
        evidence.methods[0].runs[0].average_cost("downlink")[9]
    )
    lines = (tmp_path / "out" / "fig1.md").read_text().splitlines()
    assert lines[0].startswith("| method | seeds | final accuracy | training loss | iterations to 0.60 |")
    assert "| 12.5 ± 3.5 | 20 (1 of 2) |" in lines[2]
    assert "| – | – |" in lines[3]
    assert points[0]["compute_cost"] == ""  # nothing was spent before the first iteration


def test_the_same_runs_give_the_same_files(evidence: Evidence, tmp_path: Path) -> None:
    again = Evidence(evidence.key, evidence.title, evidence.methods, evidence.targets)
    for one, other in zip(evidence.write(tmp_path / "1"), again.write(tmp_path / "2"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_method_far_below_is_named_and_does_not_press_the_others(tmp_path: Path) -> None:
    methods = Method("good", runs(tmp_path / "a")), Method("bad", runs(tmp_path / "b", shift=0.6))
    panels = {panel.key: panel for panel in Evidence("fig1", "", methods, ()).section.panels}
    accuracy = panels["test_accuracy"]
    assert accuracy.notes == ("bad is below (ends at 0.20)",)
    assert accuracy.y_range[0] > 0.1
    assert [curve.low is None for curve in accuracy.curves] == [False, True]


def test_a_method_far_below_that_is_seen_all_the_same_is_not_named(tmp_path: Path) -> None:
    """Early on the better one was as low."""
    rising = {"good": (0.1, 0.2, 0.9), "bad": (0.1, 0.2, 0.3)}
    methods = []
    for name, values in rising.items():
        evaluations = {
            at: {"train_loss": 1.0, "test_accuracy": value, "seconds": 0.0}
            for at, value in zip((0, 5, 20), values, strict=True)
        }
        folders = [tmp_path / name / str(seed) for seed in (1, 2)]
        methods.append(
            Method(name, tuple(Run(write_run(folder, evaluations=evaluations)) for folder in folders))
        )
    panels = {panel.key: panel for panel in Evidence("fig1", "", tuple(methods), ()).section.panels}
    assert panels["test_accuracy"].notes == ()
    assert panels["test_accuracy"].y_range[0] < 0.3
    assert all(curve.low is not None for curve in panels["test_accuracy"].curves)


def test_a_loss_far_above_is_named_and_does_not_press_the_others(tmp_path: Path) -> None:
    good = Method("good", runs(tmp_path / "a"))
    losses = {n: {"train_loss": 30.0, "test_accuracy": 0.1, "seconds": 0.0} for n in (0, 10, 20)}
    bad = Method("bad", (Run(write_run(tmp_path / "b", evaluations=losses)),))
    panels = {panel.key: panel for panel in Evidence("fig1", "", (good, bad), ()).section.panels}
    assert panels["train_loss"].notes == ("bad is above (ends at 30)",)
    assert panels["train_loss"].y_range[1] < 3


def test_curves_say_where_they_come_from(evidence: Evidence, tmp_path: Path) -> None:
    for panel in evidence.section.panels:
        assert [curve.origin for curve in panel.curves] == [
            f"2 runs in {tmp_path / 'a'}",
            f"2 runs in {tmp_path / 'b'}",
        ]
    (single,) = Evidence("f", "", (Method("m", runs(tmp_path / "c", (1,))),), ()).groups
    assert single.origin == str(tmp_path / "c" / "seed-1")


def test_the_page_has_a_chapter_for_each_figure(evidence: Evidence, tmp_path: Path) -> None:
    other = Evidence("fig2", "Figure 2", evidence.methods[:1], ())
    page = write_evidence([evidence, other], "FlexFL on <data>", tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    body = text[: text.index('<script type="application/json"')]
    assert page.name == "index.html"
    assert write_evidence([other], "alone", tmp_path / "out").name == "fig2.html"
    assert "FlexFL on &lt;data&gt;" in body
    places = re.findall(r'id="chart-([\w-]+)"', body)
    assert len(places) == len(set(places)) == 10
    assert {place.split("-")[0] for place in places} == {"fig1", "fig2"}
    assert re.findall(r'data-group="([\w-]+)"', body) == ["fig1-group-0", "fig1-group-1", "fig2-group-0"]
    names = re.findall(r' id="([^"]+)"', body)
    assert len(names) == len(set(names))
    assert "Baseline &lt;1&gt;" in body
    assert "Baseline <1>" not in body
    for run in (*evidence.methods[0].runs, *evidence.methods[1].runs):
        assert str(run.directory) in body
    for end in (".png", ".svg", ".csv", "-curves.csv"):
        assert (tmp_path / "out" / f"fig1{end}").exists()
        assert f'href="fig1{end}"' in body
