"""What a budget buys: the settings that vary, the cheapest budget, the table, the picture and the page."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from rich.console import Console
from typer.testing import CliRunner

from flexfl.cli.completion import budgets
from flexfl.cli.frontier_table import show_frontier
from flexfl.cli.main import app
from flexfl.errors import Fault, InputError
from flexfl.experiments.cell import run_cell
from flexfl.experiments.frontier import Grid, _axes, load_grid
from flexfl.report.frontier import Frontier, cheapest_text, smallest_text
from flexfl.report.frontier_cells import Axis, Point, final_accuracy
from flexfl.report.frontier_charts import curve_chart, map_chart, spent_chart
from flexfl.report.frontier_figure import draw_frontier
from flexfl.report.frontier_page import write_frontier
from flexfl.report.frontier_panels import map_panels, spent_panels
from flexfl.results import Run
from runs import write_run

UPLINK, DOWNLINK = (0.01, 0.1, 1.0), (0.2, 0.4)
ACCURACY = [[0.5, 0.6], [0.7, 0.65], [0.8, 0.9]]  # by uplink and downlink


def axis(field: str, values: tuple[float, ...]) -> Axis:
    return Axis(field, values, tuple(f"{value:g}" for value in values))


def run(folder: Path, budget: Mapping[str, float], accuracy: float, seed: int = 1, part: float = 0.5) -> Run:
    """A run that spends `part` of its uplink budget on average, and little else."""
    cost = part * budget["uplink"] / 1.5
    evaluations = {0: {"test_accuracy": 0.1, "seconds": 0.0}, 20: {"test_accuracy": accuracy, "seconds": 1.0}}
    limits = {"compute": 100.0, "downlink": 100.0} | dict(budget)
    path = write_run(folder / f"seed-{seed}", seed=seed, cost=cost, evaluations=evaluations, budget=limits)
    return Run(path)


def frontier(
    folder: Path, targets: tuple[float, ...] = (), over: tuple[tuple[int, int], ...] = ()
) -> Frontier:
    axes = axis("budget.uplink", UPLINK), axis("budget.downlink", DOWNLINK)
    points = []
    for i, j in np.ndindex(3, 2):
        label = f"uplink={UPLINK[i]:g}, downlink={DOWNLINK[j]:g}"
        part = 1.2 if (i, j) in over else 0.5
        found = run(
            folder / label, {"uplink": UPLINK[i], "downlink": 100 * DOWNLINK[j]}, ACCURACY[i][j], part=part
        )
        points.append(Point((i, j), label, (found,)))
    return Frontier("quick", axes, tuple(points), targets)


def line(folder: Path, *accuracies: tuple[float, ...], targets: tuple[float, ...] = ()) -> Frontier:
    """One budget that varies; several accuracies are those of several seeds."""
    values = tuple(10.0 ** (n - 2) for n in range(len(accuracies)))
    points = []
    for n, found in enumerate(accuracies):
        label = f"uplink={values[n]:g}"
        runs = [run(folder / label, {"uplink": values[n]}, a, seed) for seed, a in enumerate(found, start=1)]
        points.append(Point((n,), label, tuple(runs)))
    return Frontier("quick", (axis("budget.uplink", values),), tuple(points), targets)


# What varies ---------------------------------------------------------------------------------


def test_values_are_ordered_and_keep_how_they_were_written() -> None:
    faults: list[Fault] = []
    ((found, values),) = _axes(["budget.uplink=0.02, 0.0025,1e-2"], faults)
    assert not faults
    assert found == Axis("budget.uplink", (0.0025, 0.01, 0.02), ("0.0025", "0.01", "0.02"))
    assert values == [0.0025, 0.01, 0.02]


@pytest.mark.parametrize(
    ("text", "expected", "texts", "shown"),
    [
        ("900 kB, 20 MB", (9e5, 2e7), ("900 kB", "20 MB"), "5 MB"),
        ('"20 MB", "900 kB"', (9e5, 2e7), ("900 kB", "20 MB"), "5 MB"),
        (
            "2 kB / iteration,1 kB/iteration",
            (1e3, 2e3),
            ("1 kB/iteration", "2 kB / iteration"),
            "5 MB / iteration",
        ),
        ("60 MB / 2day, 1 MB / hour", (4.8e7, 6e7), ("1 MB / hour", "60 MB / 2day"), "5 MB / 2day"),
    ],
)
def test_amounts_with_units_are_compared_as_numbers(
    text: str, expected: tuple[float, ...], texts: tuple[str, ...], shown: str
) -> None:
    faults: list[Fault] = []
    ((found, values),) = _axes([f"budget.uplink={text}"], faults)
    assert not faults
    assert found.values == pytest.approx(expected)
    assert (found.texts, tuple(values)) == (texts, texts)  # a spec gets them as they were written
    assert found.text(5e6) == shown


def test_what_is_a_budget() -> None:
    kinds = {
        "budget.uplink": ("uplink", True),
        "budget.battery.limit": (None, True),
        "budget.uplink.others": (None, True),
        "budget.battery.compute": (None, False),
        "train.learning_rate": (None, False),
    }
    for field, (knob, is_budget) in kinds.items():
        assert (axis(field, (1.0,)).knob, axis(field, (1.0,)).is_budget) == (knob, is_budget)
    assert axis("train.learning_rate", (1.0,)).title == "train.learning_rate"


WRONG = [
    (["budget.uplnk=0.1"], {}, "budget.uplnk is not a key here, got 0.1; did you mean uplink?"),
    (["budgets.uplink=0.1,0.2"], {}, "budgets is not a section of a spec"),
    (["control.send_ratio=0.1,0.2"], {}, "control.send_ratio is not a parameter of price"),
    (
        ["uplink=0.1"],
        {},
        "must read section.key=value,value, got 'uplink=0.1'; write --vary budget.uplink=0.1",
    ),
    (["budget.uplink"], {}, "must read section.key=value,value"),
    (["budget.uplink="], {}, "--vary budget.uplink must list at least one value"),
    (["budget.uplink=,"], {}, "--vary budget.uplink must list at least one value"),
    (["budget.uplink=0.1,0.10"], {}, "must list each value once, got 0.1; remove one of the two"),
    (["budget.uplink=1 MB,1000 kB"], {}, "must list each value once"),
    (["budget.uplink=0.1,20 MB"], {}, "must list values that can be compared, got [0.1, '20 MB']"),
    (["budget.uplink=20 MB,20 MB/month"], {}, "must list values that can be compared"),
    (["budget.uplink=some"], {}, "must be a number with a unit"),
    (["budget.uplink=.5"], {}, "write 0.5"),
    (["budget.uplink=inf"], {}, "must list finite numbers"),
    (["budget.uplink=[0.1]"], {}, "must list finite numbers"),
    (["budget.uplink=0.1,-1"], {}, "uplink=-1: budget.uplink must be > 0"),
    (["budget.uplink=0.1", "budget.uplink=0.2"], {}, "must name budget.uplink once"),
    (["train.seed=1,2"], {}, "must not be the seed, got 'train.seed=1,2'; give --seeds 1-3"),
    ([], {}, "--vary must be given once to 3 times"),
    (["a.b=1", "a.c=1", "a.d=1", "a.e=1"], {}, "use flexfl sweep for more"),
    (["budget.uplink=0.1"], {"targets": [1.2]}, "target must be a test accuracy in (0, 1]"),
    (["budget.uplink=0.1"], {"targets": [-0.1]}, "target must be a test accuracy in (0, 1]"),
    (["train.learning_rate=0.1"], {"targets": [0.5]}, "--target needs a budget that varies"),
    (["budget.uplink=0.1"], {"seeds": "x"}, "--seeds must list whole numbers"),
    (["budget.uplink=0.1"], {"overrides": ["train.iterationz=1"]}, "did you mean iterations?"),
]


@pytest.mark.parametrize(("vary", "more", "message"), WRONG, ids=[str(case[0])[:40] for case in WRONG])
def test_mistakes_are_one_error_before_any_work(
    vary: list[str], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_grid("quickstart", vary, tmp_path / "out", **more)
    assert len(caught.value.faults) == 1
    assert not list(tmp_path.iterdir())


def test_faults_of_the_command_are_listed_together(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_grid("quickstart", ["budget.uplink=", "downlink=1"], tmp_path, seeds="x", targets=[2.0])
    assert len(caught.value.faults) == 4


def test_cells_are_every_combination_for_every_seed(tmp_path: Path) -> None:
    vary = ["budget.uplink=0.02,0.01", "train.learning_rate=0.1"]
    grid = load_grid("quickstart", vary, tmp_path, seeds="1-2", overrides=["train.iterations=7"])
    seen = [(c.spec.train.seed, c.spec.budget.uplink, c.spec.train.learning_rate) for c in grid.cells]
    assert seen == [(seed, uplink, 0.1) for seed in (1, 2) for uplink in (0.01, 0.02)]
    assert grid.cells[0].out == tmp_path / "uplink=0.01-learning_rate=0.1" / "seed-1"
    assert {cell.spec.train.iterations for cell in grid.cells} == {7}


# What it buys --------------------------------------------------------------------------------


def test_the_end_of_a_run_is_its_last_fifth(tmp_path: Path) -> None:
    evaluations = {n: {"test_accuracy": n / 100, "seconds": 0.0} for n in range(0, 21, 2)}
    found = Run(write_run(tmp_path / "a", evaluations=evaluations))
    assert final_accuracy(found) == pytest.approx(np.mean([0.16, 0.18, 0.2]))
    many = {n: {"test_accuracy": float(n == 9), "seconds": 0.0} for n in range(0, 101)}
    assert final_accuracy(Run(write_run(tmp_path / "b", evaluations=many, iterations=100))) == 0.0
    none = {0: {"train_loss": 1.0, "seconds": 0.0}}
    assert final_accuracy(Run(write_run(tmp_path / "c", evaluations=none))) is None


def test_the_cheapest_of_two_budgets_by_hand(tmp_path: Path) -> None:
    found = frontier(tmp_path, targets=(0.65, 0.95))
    np.testing.assert_array_equal(found.accuracy, ACCURACY)
    np.testing.assert_array_equal(found.best, [[0.5, 0.6], [0.7, 0.7], [0.8, 0.9]])
    values = {(c.axis, c.others): c.found and c.found.value for c in found.cheapest if c.target == 0.65}
    assert values[0, (0,)] == pytest.approx(10 ** (-2 + 0.75))  # from 0.5 to 0.7 over a decade
    assert values[0, (1,)] == pytest.approx(10 ** (-2 + 0.5))
    assert values[1, (0,)] is None  # with the smallest uplink it is never reached
    assert values[1, (1,)] == 0.2
    least = found.least(0.65, 0)
    assert least is not None
    assert least.others == (1,)
    assert cheapest_text(found, 0.65, 0) == (
        "0.0316, interpolated between 0.01 (0.600) and 0.1 (0.700), with downlink=0.4"
    )
    assert cheapest_text(found, 0.65, 1) == (
        "at most 0.2: reached at 0.2 (0.700), the least that was tried, with uplink=0.1"
    )
    assert "uplink=0.1, downlink=0.2 (0.700)" in smallest_text(found, 0.65, 0)
    assert cheapest_text(found, 0.95, 0) == "not reached: the best is 0.900 with uplink=1, downlink=0.4"
    assert smallest_text(found, 0.95, 0) == ""


def test_a_cell_over_its_budget_does_not_show_what_that_buys(tmp_path: Path) -> None:
    found = frontier(tmp_path, targets=(0.65,), over=((1, 0), (2, 1)))
    assert [point.is_over for point in found.points] == [False, False, True, False, False, True]
    np.testing.assert_array_equal(found.best, [[0.5, 0.6], [0.5, 0.65], [0.8, 0.8]])
    assert found.over.startswith("2 of 6 cells, marked !, spent more than 105% of a budget")
    point = found.smallest(0.65, 0)
    assert point is not None
    assert point.label == "uplink=0.1, downlink=0.4"
    assert found.rows()[2]["over_budget"]
    nothing = frontier(tmp_path / "b", targets=(0.65,), over=tuple(np.ndindex(3, 2)))  # type: ignore[arg-type]
    assert cheapest_text(nothing, 0.65, 0) == "not reached: no cell has an accuracy within its budgets"


def test_a_setting_that_is_no_budget_is_not_monotone(tmp_path: Path) -> None:
    base = frontier(tmp_path)
    turned = [base.points[2 * i + j] for i in (2, 1, 0) for j in (0, 1)]
    points = tuple(Point((n // 2, n % 2), point.label, point.runs) for n, point in enumerate(turned))
    found = Frontier("quick", (axis("train.learning_rate", UPLINK), base.axes[1]), points, (0.65,))
    np.testing.assert_array_equal(found.best, [[0.8, 0.9], [0.7, 0.7], [0.5, 0.6]])
    assert [(c.axis, c.others, c.found is None) for c in found.cheapest] == [
        (1, (0,), False),
        (1, (1,), False),
        (1, (2,), True),
    ]
    (panel,) = map_panels(found)
    assert panel.lines[0].name == "downlink"
    assert panel.lines[0].y.tolist() == [pytest.approx(1.5 * np.log10(0.2) - 0.5 * np.log10(0.4))] * 2


def test_seeds_are_averaged(tmp_path: Path) -> None:
    found = line(tmp_path, (0.4, 0.6), (0.7, 0.9), targets=(0.65,))
    point = found.points[0]
    assert point.text == "0.50 ± 0.14"
    assert point.mean == pytest.approx(0.5)
    (cheapest,) = found.cheapest
    assert cheapest.found is not None
    assert cheapest.found.value == pytest.approx(10**-1.5)
    assert found.rows()[1]["accuracy_deviation"] == pytest.approx(0.141421)
    assert point.worst is not None
    assert (point.worst.knob, point.worst.who) == ("uplink", "client 3")
    assert point.worst.share == pytest.approx(1.0)  # twice the mean of 0, 1, 2, 3, which is half the budget


def test_the_front_counts_all_budgets_that_vary(tmp_path: Path) -> None:
    found = frontier(tmp_path)
    assert found.knobs == ("uplink", "downlink")
    # Spending grows with uplink only, the same for both downlinks: of each pair the better one.
    assert found.front.tolist() == [False, True, True, False, False, True]


# Files, pictures, pages ----------------------------------------------------------------------


def test_table_json_picture_and_page(tmp_path: Path) -> None:
    found = frontier(tmp_path / "runs", targets=(0.65, 0.95), over=((0, 0),))
    page = write_frontier(found, tmp_path / "out", ["png", "svg", "pdf"])
    names = {path.name for path in page.parent.iterdir()}
    assert names == {f"frontier.{end}" for end in ("html", "png", "svg", "pdf", "csv", "json")}
    with (page.parent / "frontier.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["budget.uplink"], row["budget.downlink"]) for row in rows][:2] == [
        ("0.01", "0.2"),
        ("0.01", "0.4"),
    ]
    assert [float(row["accuracy"]) for row in rows] == [value for row in ACCURACY for value in row]
    assert float(rows[3]["uplink_share"]) == pytest.approx(0.5)
    data = json.loads((page.parent / "frontier.json").read_text())
    assert data == found.plain()
    assert [entry["field"] for entry in data["axes"]] == ["budget.uplink", "budget.downlink"]
    missed = [entry for entry in data["cheapest"] if entry["target"] == 0.95]
    assert not any(entry["reached"] for entry in missed)
    text = page.read_text(encoding="utf-8")
    assert "not reached: the best is 0.900 with uplink=1, downlink=0.4." in text
    assert "! over budget" in text
    assert text.count('id="chart-') == 3


def test_the_picture_names_its_axes_and_marks_its_cells(tmp_path: Path) -> None:
    picture = draw_frontier(frontier(tmp_path / "two", targets=(0.65,), over=((0, 0),)))
    shades, _, up, down = picture.axes  # the second is the bar of colours
    assert shades.get_xlabel().startswith("uplink budget of each client\n(average per iteration, log scale)")
    assert shades.get_ylabel() == "downlink budget of the server\n(average per iteration, log scale)"
    assert [text.get_text() for text in shades.get_xticklabels()] == ["0.01", "0.1", "1"]
    assert shades.get_xticks().tolist() == pytest.approx([-2, -1, 0])
    written = {text.get_text() for text in shades.texts}
    assert written >= {"0.500 !", "0.600", "0.700", "0.650", "0.800", "0.900", "0.65"}
    assert (up.get_xscale(), up.get_ylabel()) == ("log", "test accuracy at the end")
    assert down.get_xlabel().startswith(
        "spent on downlink by the server\n(in an iteration, log scale; filled"
    )
    curve = draw_frontier(line(tmp_path / "one", (0.4, 0.6), (0.7, 0.9), targets=(0.65,))).axes[0]
    assert [text.get_text() for text in curve.get_xticklabels()] == ["0.01", "0.1"]
    assert "0.0316" in {text.get_text() for text in curve.texts}
    assert len(curve.collections) == 1  # the band


def charts_of(found: Frontier) -> list[dict[str, Any]]:
    maps = [map_chart(panel, found) for panel in map_panels(found)]
    return (maps or [curve_chart(found)]) + [spent_chart(panel, found) for panel in spent_panels(found)]


def test_plotly_takes_the_charts(tmp_path: Path) -> None:
    two = frontier(tmp_path / "two", targets=(0.65,), over=((0, 0),))
    for chart in [
        *charts_of(two),
        *charts_of(line(tmp_path / "one", (0.4, 0.6), (0.7, 0.9), targets=(0.65,))),
    ]:
        go.Figure(chart)  # raises for a property that there is not
    heat, target = charts_of(two)[0]["data"]
    assert heat["z"] == [[0.5, 0.7, 0.8], [0.6, 0.65, 0.9]]
    assert heat["text"][0][0] == "0.500 !"
    assert target["x"] == pytest.approx([-1.5, -1.5])  # nothing smaller counts; and half way from 0.6 to 0.7
    assert target["marker"]["symbol"] == ["triangle-left", "diamond"]


def test_a_mark_at_the_border_is_inside_the_chart(tmp_path: Path) -> None:
    base = frontier(tmp_path)
    for values in ((0.2, 0.4, 0.8), (2e5, 4e5, 8e5), (0.07, 0.3, 0.9)):
        found = Frontier("quick", (axis("budget.uplink", values), base.axes[1]), base.points, (0.4,))
        chart = charts_of(found)[0]
        low, high = chart["layout"]["xaxis"]["range"]
        assert chart["data"][1]["marker"]["symbol"] == ["triangle-left"] * 2
        assert all(low <= x <= high for x in chart["data"][1]["x"])


def test_one_value_and_cells_without_a_run_are_drawn(tmp_path: Path) -> None:
    lone = line(tmp_path / "one", (0.4,), targets=(0.3,))
    assert write_frontier(lone, tmp_path / "a").exists()
    assert cheapest_text(lone, 0.3, 0).startswith("at most 0.01")
    base = frontier(tmp_path / "two", targets=(0.65,))
    holes = tuple(Point(p.index, p.label, p.runs if p.index != (1, 0) else ()) for p in base.points)
    found = Frontier("quick", base.axes, holes, base.targets)
    assert np.isnan(found.accuracy[1, 0])
    assert found.best[1, 0] == 0.5
    assert write_frontier(found, tmp_path / "b").exists()
    assert found.rows()[2]["accuracy"] is None
    for chart in charts_of(found):
        json.dumps(chart, allow_nan=False)
    empty = Frontier("quick", base.axes, tuple(Point(p.index, p.label, ()) for p in base.points), (0.65,))
    assert write_frontier(empty, tmp_path / "c").exists()


def test_three_settings_are_maps_side_by_side(tmp_path: Path) -> None:
    base = frontier(tmp_path, targets=(0.65,))
    axes = (*base.axes, axis("budget.compute", (0.1, 0.2)))
    points = [
        Point((*point.index, k), f"{point.label}, compute={axes[2].texts[k]}", point.runs)
        for point in base.points
        for k in range(2)
    ]
    found = Frontier("quick", axes, tuple(points), base.targets)
    assert [panel.title for panel in map_panels(found)] == ["compute=0.1", "compute=0.2"]
    assert [panel.accuracy.tolist() for panel in map_panels(found)] == [np.transpose(ACCURACY).tolist()] * 2
    assert write_frontier(found, tmp_path / "out").exists()


def printed(found: Frontier, width: int) -> list[str]:
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        show_frontier(console, found)
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(width: int, tmp_path: Path) -> None:
    shown = printed(frontier(tmp_path, targets=(0.65, 0.95), over=((0, 0),)), width)
    assert max(map(len, shown)) <= width
    (row,) = [text for text in shown if text.split()[:2] == ["0.1", "0.4"]]
    assert "0.650" in row
    assert "50%" in row
    assert ("0.05, 50%" in row) == (width == 120)
    text = " ".join(" ".join(shown).split())
    assert "not reached: the best is 0.900 with uplink=1, downlink=0.4" in text
    assert "1 of 6 cells, marked !, spent more than 105% of a budget" in text


# The command ---------------------------------------------------------------------------------

TINY = ["data.clients=10", "train.iterations=4", "train.evaluate_every=2", "train.batch_size=2"]
VARY = ["budget.uplink=5.0,9.0"]
COMMAND = ["frontier", "quickstart", "--vary", *VARY, *(word for text in TINY for word in ("--set", text))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Grid, Path]:
    """A grid whose runs are finished: the command has only to show it."""
    out = tmp_path_factory.mktemp("frontier")
    grid = load_grid("quickstart", VARY, out, overrides=TINY)
    for cell in grid.cells:
        assert run_cell(cell, 1, False, lambda **changes: None)["state"] == "done"
    return grid, out


def test_the_command_shows_what_is_finished(finished: tuple[Grid, Path]) -> None:
    grid, out = finished
    done = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--target", "0.99"])
    assert done.exit_code == 0, done.output
    assert "not reached: the best is" in done.output
    assert f"open           {out / 'frontier/frontier.html'}" in done.output
    as_json = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--json", "--format", "svg"])
    data = json.loads(as_json.stdout)
    assert [cell["budget.uplink"] for cell in data["cells"]] == ["5", "9"]
    assert data["cells"][0]["accuracy"] == pytest.approx(grid.frontier().points[0].mean, rel=1e-5)
    assert (out / "frontier/frontier.svg").exists()


def test_runs_of_other_settings_are_told_before_any_work(finished: tuple[Grid, Path]) -> None:
    _, out = finished
    done = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--set", "train.learning_rate=0.7"])
    assert "belongs to another run" in str(done.exception)
    assert "and 1 more do" in str(done.exception)


def test_a_format_that_there_is_not() -> None:
    done = CliRunner().invoke(app, [*COMMAND, "--format", "gif"])
    assert "format must list some of png, svg, pdf" in str(done.exception)


def test_completion_offers_budgets() -> None:
    assert budgets("") == ["budget.compute=", "budget.uplink=", "budget.downlink="]
    assert budgets("budget.d") == ["budget.downlink="]
