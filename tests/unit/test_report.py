"""The report: grouping, numbers, figures, and a page that stands alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from flexfl.errors import InputError, RunDirectoryError
from flexfl.report import write_report
from flexfl.report.charts import chart
from flexfl.report.curves import align, mean_and_deviation, round_window, running_mean, subsample
from flexfl.report.groups import Group, format_setting, group_runs
from flexfl.report.page import write_page
from flexfl.report.panels import OVER_CLIENTS, OVER_SEEDS, Panel, sections_of
from flexfl.report.style import line_style
from flexfl.report.summary import Estimate, notes_of, row_of
from flexfl.results import Run
from runs import BUDGETS, write_run

FIGURES = ("loss", "accuracy", "costs", "queues", "components", "overview")


def groups_of(*directories: Path) -> tuple[Group, ...]:
    return group_runs(Run(directory) for directory in directories)


def panels_of(groups: Sequence[Group]) -> dict[str, Panel]:
    return {panel.key: panel for section in sections_of(groups) for panel in section.panels}


def own_markup(page: Path) -> str:
    """The page without plotly's source."""
    text, source = page.read_text(encoding="utf-8"), get_plotlyjs()
    assert source in text
    return text.replace(source, "")


def page_of(out: Path, *directories: Path) -> str:
    """The page alone: drawing the figures as well takes most of a report's time."""
    groups = groups_of(*directories)
    out.mkdir()
    return own_markup(write_page(groups, sections_of(groups), FIGURES, out / "report.html"))


def report_of(out: Path, *directories: Path) -> str:
    """The page, with all figures drawn."""
    page = write_report(directories, out)
    assert page == out / "report.html"
    assert {picture.stem for picture in out.glob("*.png")} == set(FIGURES)
    return own_markup(page)


def charts_of(markup: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', markup, re.DOTALL)
    assert found
    charts: dict[str, Any] = json.loads(found[1])
    return charts


# Groups and labels -------------------------------------------------------------------------


def test_runs_that_differ_in_the_seed_only_are_one_group(tmp_path: Path) -> None:
    (group,) = groups_of(write_run(tmp_path / "b", seed=2), write_run(tmp_path / "a", seed=1))
    assert [run.seed for run in group.runs] == [1, 2]
    assert group.label == "online"
    assert "train.seed" not in group.settings


def test_a_label_tells_what_sets_a_group_apart(tmp_path: Path) -> None:
    groups = groups_of(
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", control={"policy": "randomised", "send_ratio": 0.01}),
        write_run(tmp_path / "c", control={"policy": "randomised", "send_ratio": 0.001}),
    )
    assert [group.label for group in groups] == [
        "control.policy=online",
        "control.policy=randomised, control.send_ratio=0.01",
        "control.policy=randomised, control.send_ratio=0.001",
    ]


def test_what_only_one_policy_knows_is_left_out_of_the_label(tmp_path: Path) -> None:
    groups = groups_of(
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", control={"policy": "periodic", "send_every": 5}),
    )
    assert [group.label for group in groups] == ["control.policy=online", "control.policy=periodic"]


def test_a_setting_that_one_group_lacks_is_named(tmp_path: Path) -> None:
    limited = {"compute": 0.25, "uplink": 0.01}
    groups = groups_of(
        write_run(tmp_path / "a", budget=limited), write_run(tmp_path / "b", budget={"compute": 0.25})
    )
    assert [group.label for group in groups] == ["budget.uplink=0.01", "no budget.uplink"]


def test_labels_stay_apart_when_long_lists_read_alike(tmp_path: Path) -> None:
    lists = ([0.1, 0.2, 0.3, 0.4, 0.5], [0.1, 0.3, 0.2, 0.4, 0.5])
    groups = groups_of(
        *(write_run(tmp_path / str(i), train={"rates": rates}) for i, rates in enumerate(lists))
    )
    assert [group.label for group in groups] == [
        "train.rates=0.1…0.5 (5 values) #1",
        "train.rates=0.1…0.5 (5 values) #2",
    ]


def test_a_policy_by_knob_labels_a_single_group(tmp_path: Path) -> None:
    by_knob = {"policy": {"compute": "online", "uplink": "top-k"}}
    (group,) = groups_of(write_run(tmp_path / "a", control=by_knob))
    assert group.label == "compute=online, uplink=top-k"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.01, "0.01"),
        ("mlp", "mlp"),
        ([1, 0.5], "[1, 0.5]"),
        ([{"clients": [0], "limit": 1.0}] * 5, "(5 entries)"),
    ],
)
def test_settings_as_text(value: Any, text: str) -> None:
    assert format_setting(value) == text


# Numbers -----------------------------------------------------------------------------------


def test_mean_and_deviation_by_hand() -> None:
    mean, deviation = mean_and_deviation(np.array([[1.0, 0.0], [2.0, 0.0], [6.0, 3.0]]))
    assert mean == pytest.approx([3.0, 1.0])
    # ((1−3)² + (2−3)² + (6−3)²) / 2 = 7; (1 + 1 + 4) / 2 = 3
    assert deviation == pytest.approx([7**0.5, 3**0.5])
    assert mean_and_deviation(np.array([[1.0]]))[1] is None


def test_runs_are_cut_to_what_they_have_in_common() -> None:
    x, values = align(
        [
            (np.array([0.0, 5.0, 10.0]), np.array([1.0, 2.0, 3.0])),
            (np.array([0.0, 5.0]), np.array([4.0, np.nan])),
            (np.empty(0), np.empty(0)),
        ]
    )
    assert x.tolist() == [0.0]
    assert values.tolist() == [[1.0], [4.0]]


def test_running_mean_by_hand() -> None:
    assert running_mean(np.array([4.0, 0.0, 2.0, 6.0]), 2).tolist() == [4.0, 2.0, 1.0, 4.0]
    assert running_mean(np.array([4.0, 0.0]), 1).tolist() == [4.0, 0.0]


@pytest.mark.parametrize(("iterations", "window"), [(0, 1), (30, 1), (200, 5), (2000, 50), (10_000, 200)])
def test_the_window_is_a_round_number(iterations: int, window: int) -> None:
    assert round_window(iterations) == window


def test_long_series_are_thinned_and_keep_their_ends() -> None:
    stay = subsample(12_345)
    assert len(stay) <= 1000
    assert stay[0] == 0
    assert stay[-1] == 12_344
    assert subsample(7).tolist() == list(range(7))


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.12345678, None), "0.1235"),
        (Estimate(0.81234, 0.0123), "0.812 ± 0.012"),
        (Estimate(0.24991, 0.00058), "0.2499 ± 0.0006"),
        (Estimate(0.001262, 0.0000234), "0.001262 ± 0.000023"),
        (Estimate(312.4, 12.3), "312 ± 12"),
        (Estimate(0.5, 0.0), "0.50 ± 0.00"),
    ],
)
def test_as_many_digits_as_the_deviation_allows(estimate: Estimate, text: str) -> None:
    assert str(estimate) == text


def test_the_summary_of_a_group_by_hand(tmp_path: Path) -> None:
    (group,) = groups_of(*(write_run(tmp_path / str(seed), seed=seed, cost=seed / 10) for seed in (1, 2)))
    row = row_of(group)
    assert row.train_loss == Estimate(2.5, pytest.approx(0.5**0.5))
    assert row.test_accuracy is not None
    assert row.test_accuracy.mean == pytest.approx(0.65)
    assert row.seconds == Estimate(15.0, pytest.approx(50**0.5))
    # The mean over clients of cost·(0, 1, 2, 3) is 1.5·cost: 0.15 and 0.3, against 0.25.
    compute = row.costs["compute"]
    assert compute is not None
    assert compute.average.mean == pytest.approx(0.225)
    assert compute.average.deviation == pytest.approx(0.15 / 2**0.5)
    assert compute.within == (True, False)


def test_a_budget_that_is_met_to_the_digit_is_met(tmp_path: Path) -> None:
    (group,) = groups_of(write_run(tmp_path / "a", cost=0.1, iterations=50, budget={"downlink": 0.1}))
    downlink = row_of(group).costs["downlink"]
    assert downlink is not None
    assert downlink.within == (True,)


# Panels ------------------------------------------------------------------------------------


def test_curves_hold_mean_and_band_over_seeds(tmp_path: Path) -> None:
    groups = groups_of(*(write_run(tmp_path / str(seed), seed=seed, cost=seed / 10) for seed in (1, 3)))
    panels = panels_of(groups)
    (loss,) = panels["train_loss"].curves
    assert loss.x.tolist() == [0.0, 20.0]
    assert loss.mean == pytest.approx([4.0, 3.0])
    assert loss.high == pytest.approx([4.0 + 2**0.5, 3.0 + 2**0.5])
    assert loss.low == pytest.approx([4.0 - 2**0.5, 3.0 - 2**0.5])
    (queue,) = panels["compute_queue"].curves
    assert queue.mean == pytest.approx(np.full(20, 0.3))
    assert {panel.band for panel in panels.values() if panel.curves} == {OVER_SEEDS}
    assert panels["uplink_cost"].budgets == (0.01,)


def test_the_queues_of_a_single_run_have_a_band_over_clients(tmp_path: Path) -> None:
    panels = panels_of(groups_of(write_run(tmp_path / "a", cost=1.0)))
    (curve,) = panels["uplink_queue"].curves
    assert panels["uplink_queue"].band == OVER_CLIENTS
    assert curve.mean == pytest.approx(np.full(20, 1.5))
    assert curve.low == pytest.approx(np.full(20, 0.3))  # quantiles of 0, 1, 2, 3
    assert curve.high == pytest.approx(np.full(20, 2.7))
    assert panels["downlink_queue"].band == ""


def test_every_axis_is_named(tmp_path: Path) -> None:
    panels = panels_of(groups_of(write_run(tmp_path / "a", iterations=100)))
    for panel in panels.values():
        assert panel.y_label
        assert panel.y_range[0] < panel.y_range[1]
    assert "running mean over 2 iterations" in panels["uplink_components_mean"].y_label
    assert "per client and iteration" in panels["uplink_cost"].y_label


def test_a_policy_without_queues_is_said_to_have_none(tmp_path: Path) -> None:
    full = write_run(tmp_path / "full", control={"policy": "full"}, queues=False)
    alone = panels_of(groups_of(full))["compute_queue"]
    assert alone.curves == ()
    assert "policy without queues" in alone.notes[0]
    beside = panels_of(groups_of(write_run(tmp_path / "online"), full))["compute_queue"]
    assert [curve.label for curve in beside.curves] == ["control.policy=online"]
    assert "control.policy=full" in beside.notes[0]
    others = [
        write_run(tmp_path / policy, control={"policy": policy}, queues=False)
        for policy in ("top-k", "periodic")
    ]
    several = panels_of(groups_of(tmp_path / "online", full, *others))["compute_queue"]
    assert several.notes[0].startswith("no queue recorded for 3 of 4 groups")


def test_one_spender_does_not_flatten_the_others(tmp_path: Path) -> None:
    thrifty = write_run(tmp_path / "a", cost=0.01)
    spender = write_run(tmp_path / "b", cost=2.0, control={"policy": "full"})
    panel = panels_of(groups_of(thrifty, spender))["downlink_cost"]
    assert len(panel.curves) == 2
    assert panel.y_range[1] < 0.05
    assert panel.notes == ("off the scale: control.policy=full (ends at 2)",)
    alone = panels_of(groups_of(spender))["downlink_cost"]
    assert alone.y_range[1] > 2.0
    assert alone.notes == ()


def test_groups_look_different() -> None:
    assert len({line_style(index) for index in range(18)}) == 18


# Files -------------------------------------------------------------------------------------


def test_figures_are_images_of_a_sensible_size(tmp_path: Path) -> None:
    directories = [write_run(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    write_report(directories, tmp_path / "deep" / "out")
    for name in FIGURES:
        picture = imread(tmp_path / "deep" / "out" / f"{name}.png")
        height, width = picture.shape[:2]
        assert 1000 <= width <= 2400
        assert 400 <= height <= 1200
        assert picture[..., :3].std() > 0.02  # something is drawn on the white


def test_the_page_holds_curves_budgets_and_numbers(tmp_path: Path) -> None:
    directories = [write_run(tmp_path / f"run{seed}", seed=seed) for seed in (1, 2)]
    markup = page_of(tmp_path / "out", *directories)
    charts = charts_of(markup)
    traces = {trace.get("name"): trace for trace in charts["compute_cost"]["data"]}
    assert traces["budget"]["y"] == [0.25, 0.25]
    assert traces["budget"]["text"][-1] == "budget"
    assert traces["budget"]["line"]["dash"] == "dash"
    assert traces["online"]["y"] == pytest.approx([0.15] * 20)
    assert "2.50 ± 0.71" in markup  # training loss
    assert "0.650 ± 0.071" in markup  # test accuracy
    assert "of 0.25 " in markup
    assert "✓ within" in markup
    assert "✗ 15 × budget" in markup  # uplink: 0.15 of 0.01
    assert "2 seeds" in markup
    assert "20 iterations" in markup
    assert "15.0 ± 7.1 seconds" in markup
    for directory in directories:
        assert str(directory) in markup
    assert "<code>data.name</code></td><td>fashion-mini" in markup


def test_charts_are_valid_plotly(tmp_path: Path) -> None:
    groups = groups_of(
        write_run(tmp_path / "a", seed=1),
        write_run(tmp_path / "b", seed=2),
        write_run(tmp_path / "c", control={"policy": "full"}, iterations=1),
    )
    for panel in panels_of(groups).values():
        drawn = chart(panel)
        figure = Figure(drawn)  # raises on what plotly does not know
        assert figure.layout.xaxis.title.text == "iteration"
        assert figure.layout.yaxis.title.text
        assert {trace["legendgroup"] for trace in drawn["data"] if "legendgroup" in trace} <= {
            "group-0",
            "group-1",
        }


def test_one_legend_button_for_each_group_and_its_traces(tmp_path: Path) -> None:
    directories = [
        write_run(tmp_path / f"{policy}{seed}", seed=seed, control={"policy": policy})
        for policy in ("online", "full", "top-k", "periodic", "randomised")
        for seed in (1, 2, 3)
    ]
    markup = page_of(tmp_path / "out", *directories)
    buttons = re.findall(r'<button[^>]*data-group="([^"]+)"', markup)
    assert buttons == [f"group-{index}" for index in range(5)]
    for drawn in charts_of(markup).values():
        lines = [trace for trace in drawn["data"] if "hovertemplate" in trace]
        assert [trace["legendgroup"] for trace in lines] == buttons
        assert len({trace["line"]["color"] for trace in lines}) == 5


def test_the_page_asks_no_other_host(tmp_path: Path) -> None:
    markup = report_of(tmp_path / "out", write_run(tmp_path / "a"))
    assert not re.search(r"https?://", markup)
    assert not re.search(r"\ssrc=|<link|@import|url\(", markup)
    assert "default-src 'none'" in markup
    assert "sendChartToCloud" not in markup
    hrefs = re.findall(r'href="([^"]*)"', markup)
    assert hrefs == [f"{name}.png" for name in FIGURES]


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    attack = "</script><script>alert(1)</script><img onerror=x>&$\\frac$"
    directory = write_run(tmp_path / "<script>alert(2)<" / "script>", control={"note": attack})
    markup = report_of(tmp_path / "out", directory, write_run(tmp_path / "b"))
    assert "<script>alert" not in markup
    assert "<img" not in markup
    assert markup.count("<script") == 3  # data, plotly, our own
    assert "&lt;script&gt;alert(2)&lt;" in markup
    names = [trace.get("name") for trace in charts_of(markup)["train_loss"]["data"]]
    assert any("&lt;/script&gt;" in name for name in names)


# The edges ---------------------------------------------------------------------------------


def test_one_iteration_and_one_evaluation(tmp_path: Path) -> None:
    once = {0: {"train_loss": 2.3, "test_accuracy": 0.1}}
    markup = report_of(tmp_path / "out", write_run(tmp_path / "a", iterations=1, evaluations=once))
    (trace,) = charts_of(markup)["train_loss"]["data"]
    assert trace["mode"] == "markers"
    assert trace["y"] == [2.3]
    assert "1 iteration<" in markup


def test_an_unfinished_run_is_reported(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a", iterations=12, finished=False)
    markup = page_of(tmp_path / "out", directory)
    assert "unfinished, 12 of 20 iterations" in markup
    assert "7 seconds" in markup


def test_a_run_that_only_just_started(tmp_path: Path) -> None:
    idle = write_run(tmp_path / "a", iterations=0, evaluations={}, finished=False)
    markup = report_of(tmp_path / "alone", idle)
    assert charts_of(markup) == {}
    assert "No cost recorded: no iteration yet." in markup
    other = write_run(tmp_path / "b", seed=2)
    (group,) = groups_of(idle, other)
    assert notes_of(group) == ["nothing recorded yet for seed 1"]
    assert group.iterations == 20
    assert len(panels_of([group])["compute_cost"].curves[0].x) == 20


def test_runs_of_different_length_are_cut_and_said_to_be(tmp_path: Path) -> None:
    long = write_run(tmp_path / "a", seed=1, iterations=20)
    short = write_run(tmp_path / "b", seed=2, iterations=8, finished=False)
    markup = page_of(tmp_path / "out", long, short)
    assert "runs have 8, 20 iterations: truncated to the first 8" in markup
    line = next(trace for trace in charts_of(markup)["uplink_cost"]["data"] if trace.get("name") == "online")
    assert line["x"] == list(range(8))


def test_without_budgets_there_is_no_line(tmp_path: Path) -> None:
    markup = page_of(tmp_path / "out", write_run(tmp_path / "a", budget={}))
    for knob in BUDGETS:
        assert [trace["name"] for trace in charts_of(markup)[f"{knob}_cost"]["data"]] == ["online"]
    assert "No budget." in markup
    assert "within" not in markup


def test_budgets_that_differ_are_told_apart(tmp_path: Path) -> None:
    directories = [write_run(tmp_path / str(limit), budget={"uplink": limit}) for limit in (0.5, 0.25)]
    panel = panels_of(groups_of(*directories))["uplink_cost"]
    texts = [trace["text"][-1] for trace in chart(panel)["data"] if trace["name"] == "budget"]
    assert texts == ["budget 0.25", "budget 0.5"]


def test_no_accuracy_in_a_regression(tmp_path: Path) -> None:
    values = {0: {"train_loss": 2.0}, 20: {"train_loss": 1.0}}
    markup = report_of(tmp_path / "out", write_run(tmp_path / "a", evaluations=values))
    assert "test_accuracy" not in charts_of(markup)
    assert "No test accuracy recorded: not evaluated yet, or not a classification." in markup


def test_a_directory_named_twice_is_one_run(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "a")
    markup = report_of(tmp_path / "out", directory, tmp_path / "." / "a")
    assert "1 run in 1 group" in markup


def test_the_same_seed_twice_is_pointed_out(tmp_path: Path) -> None:
    (group,) = groups_of(write_run(tmp_path / "a"), write_run(tmp_path / "b"))
    assert notes_of(group) == ["a seed occurs more than once: the deviation is too small"]


def test_letters_that_the_font_lacks_do_no_harm(tmp_path: Path) -> None:
    directories = [write_run(tmp_path / name, control={"note": name}) for name in ("漢字", "b")]
    assert "control.note=漢字" in report_of(tmp_path / "out", *directories)


def test_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directories must name at least one run"):
        write_report([], tmp_path)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        write_report([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, flexfl.report; "
        "sys.exit(', '.join({'torch', 'plotly', 'matplotlib.pyplot'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
