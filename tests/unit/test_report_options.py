"""Figures of one's own runs: labels, x axes, formats, resources to accuracy, the worst client."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from flexfl.cli.main import app
from flexfl.errors import InputError
from flexfl.report import figure, resources_to_accuracy, write_report
from flexfl.report.axes import QUANTITIES, axis_of
from flexfl.report.charts import chart
from flexfl.report.curves import align, curve_over_seeds, interpolate
from flexfl.report.groups import Group, group_runs
from flexfl.report.page import write_page
from flexfl.report.panels import Panel, sections_of
from flexfl.report.summary import row_of
from flexfl.results import Run
from runs import write_run

ACCURACIES = {  # of seed 1 and 2, at iterations 0, 10, 20
    1: (0.1, 0.6, 0.8),
    2: (0.2, 0.4, 0.7),
}


def two_seeds(folder: Path, **more: Any) -> list[Path]:
    """Seed 2 spends twice as much as seed 1."""
    return [
        write_run(
            folder / str(seed),
            seed=seed,
            cost=seed / 10,
            evaluations={
                10 * place: {"test_accuracy": accuracy, "train_loss": 1.0, "seconds": place * seed}
                for place, accuracy in enumerate(ACCURACIES[seed])
            },
            **more,
        )
        for seed in (1, 2)
    ]


def panels_of(groups: tuple[Group, ...], x: str = "iteration") -> dict[str, Panel]:
    sections = sections_of(groups, axis_of(x, groups))
    return {panel.key: panel for section in sections for panel in section.panels}


def faults_of(error: pytest.ExceptionInfo[InputError]) -> str:
    return str(error.value)


# Seeds on one x axis -----------------------------------------------------------------------


def test_seeds_are_interpolated_within_what_all_reach() -> None:
    x, values = interpolate(
        [
            (np.array([0.0, 2.0, 8.0]), np.array([0.0, 1.0, 4.0])),
            (np.array([1.0, 3.0, 5.0]), np.array([10.0, 30.0, 50.0])),
            (np.empty(0), np.empty(0)),
        ]
    )
    assert x.tolist() == [1.0, 2.0, 3.0, 5.0]  # the points of both from 1, where all have begun, to 5
    assert values[0] == pytest.approx([0.5, 1.0, 1.5, 2.5])
    assert values[1] == pytest.approx([10.0, 20.0, 30.0, 50.0])


def test_a_run_that_went_on_without_spending_counts_with_its_last_value() -> None:
    x, values = interpolate([(np.array([0.0, 1.0, 1.0, 2.0]), np.array([0.0, 5.0, 7.0, 9.0]))])
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert values.tolist() == [[0.0, 7.0, 9.0]]


def test_values_that_are_not_numbers_are_left_out() -> None:
    x, values = interpolate([(np.array([0.0, 1.0, np.nan, 4.0]), np.array([0.0, np.nan, 3.0, 8.0]))])
    assert x.tolist() == [0.0, 4.0]
    assert values.tolist() == [[0.0, 8.0]]
    assert curve_over_seeds(0, "none", [(np.array([np.nan]), np.array([1.0]))], same_x=False) is None


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True).map(sorted),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_where_runs_have_the_same_x_nothing_is_changed(points: list[int], seeds: int, number: int) -> None:
    x = np.array(points, dtype=float)
    series = [(x, row) for row in np.random.default_rng(number).random((seeds, len(x)))]
    expected, found = align(series), interpolate(series)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


def test_a_curve_against_what_seeds_spent_by_hand(tmp_path: Path) -> None:
    groups = group_runs([Run(path) for path in two_seeds(tmp_path)])
    # All clients together spend 0.6 an iteration on the uplink, with seed 2 1.2: they end at 12 and 24.
    (curve,) = panels_of(groups, "uplink-cost")["test_accuracy"].curves
    assert curve.x == pytest.approx([0.0, 6.0, 12.0])
    second = [0.2, 0.3, 0.4]  # of seed 2, half way and all the way to its second evaluation at 12
    assert curve.mean == pytest.approx(np.mean([[0.1, 0.6, 0.8], second], axis=0))
    half = np.abs(np.subtract([0.1, 0.6, 0.8], second)) / 2**0.5  # the deviation of two values
    assert curve.high == pytest.approx(curve.mean + half)


# Axes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("iteration", 20.0),
        ("seconds", 2.0),
        ("training-seconds", 2.0),
        ("uplink-bytes", 12.0),  # 20 · (0 + 1 + 2 + 3) · 0.1
        ("downlink-bytes", 2.0),  # 20 · 0.1, once for all clients
        ("bytes", 14.0),
        ("compute-cost", 12.0),
        ("uplink-cost", 12.0),
        ("downlink-cost", 2.0),
        ("cost", 26.0),
    ],
)
def test_what_an_evaluation_has_taken_so_far(tmp_path: Path, name: str, end: float) -> None:
    directory, _ = two_seeds(tmp_path)
    assert QUANTITIES[name].at_evaluations(Run(directory)) == pytest.approx([0.0, end / 2, end])


def test_every_axis_of_the_command_is_tested() -> None:
    tested = {"iteration", "seconds", "training-seconds", "bytes", "uplink-bytes", "downlink-bytes", "cost"}
    costs = {"compute-cost", "uplink-cost", "downlink-cost"}
    assert set(QUANTITIES) == tested | costs | {name for name, _, _ in IN_UNITS}


def test_time_is_that_of_the_clock_where_all_runs_have_one(tmp_path: Path) -> None:
    timed, other = (
        Run(write_run(tmp_path / "a", pace=30.0)),
        Run(write_run(tmp_path / "b", control={"policy": "full"})),
    )
    assert QUANTITIES["seconds"].at_evaluations(timed) == pytest.approx([0.0, 600.0])
    assert QUANTITIES["training-seconds"].at_evaluations(timed) == pytest.approx([0.0, 7.0])
    panel = panels_of(group_runs([timed]), "seconds")["test_accuracy"]
    assert panel.x_label == "time of the run (minutes)"
    assert panel.curves[0].x == pytest.approx([0.0, 10.0])
    mixed = panels_of(group_runs([timed, other]), "seconds")["test_accuracy"]
    assert mixed.x_label == "time of the computation (seconds)"
    assert [curve.x[-1] for curve in mixed.curves] == [7.0, 7.0]


IN_UNITS = [
    ("joules", "joule", "joules"),
    ("gCO2", "gCO2", "gCO2"),
    ("euros", "EUR", "EUR"),
    ("dollars", "USD", "USD"),
]


@pytest.mark.parametrize(("name", "unit", "label"), IN_UNITS)
def test_what_was_spent_in_a_unit_by_all_knobs_that_have_it(
    tmp_path: Path, name: str, unit: str, label: str
) -> None:
    run = Run(write_run(tmp_path / "a", units={"compute": unit, "downlink": unit, "uplink": "byte"}))
    assert QUANTITIES[name].at_evaluations(run) == pytest.approx([0.0, 20 * (0.6 + 0.1)])
    panel = panels_of(group_runs([run]), name)["test_accuracy"]
    assert panel.x_label == f"spent by all clients and the server ({label})"
    own = panels_of(group_runs([run]), "compute-cost")["test_accuracy"]
    assert own.x_label == f"computing cost of all clients ({'J' if unit == 'joule' else label})"


def test_an_axis_in_a_unit_that_no_cost_has_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", units={"uplink": "byte"})
    with pytest.raises(
        InputError, match="x needs costs in joules, which these runs do not have, got 'joules'"
    ):
        figure([run], x="joules")


def test_the_summary_has_the_clock(tmp_path: Path) -> None:
    summary = Run(write_run(tmp_path / "a", pace=30.0)).summary
    assert summary is not None
    assert (summary["clock"], summary["iterations_per_hour"]) == (600.0, 120.0)
    assert "clock" not in (Run(write_run(tmp_path / "b")).summary or {})


def test_a_total_is_shared_out_over_the_iterations_that_a_duration_has_room_for(tmp_path: Path) -> None:
    total = {"compute": "30 s", "uplink": 0.1, "downlink": 0.1}
    long = {"iterations": 1000, "duration": 900.0}
    done = Run(write_run(tmp_path / "a", pace=45.0, budget=total, train=long))  # 20 · 45 s: it is over
    assert done.horizon == 20
    assert done.budget("compute") == pytest.approx(1.5)
    running = Run(write_run(tmp_path / "b", pace=30.0, budget=total, train=long, finished=False))
    assert running.horizon == 30
    assert running.budget("compute") == pytest.approx(1.0)
    assert Run(write_run(tmp_path / "c", budget=total)).horizon == 20


def test_an_evaluation_ahead_of_the_iterations_has_no_place(tmp_path: Path) -> None:
    evaluations = {0: {"test_accuracy": 0.1}, 9: {"test_accuracy": 0.5}}
    run = Run(write_run(tmp_path / "a", iterations=5, evaluations=evaluations))
    found = QUANTITIES["bytes"].at_evaluations(run)
    assert found[0] == 0.0
    assert np.isnan(found[1])


def test_axes_are_named_with_units(tmp_path: Path) -> None:
    groups = group_runs([Run(write_run(tmp_path / "a", cost=5e4))])  # 5e4 · 6 · 20 bytes up
    panel = panels_of(groups, "uplink-bytes")["test_accuracy"]
    assert panel.x_label == "sent up by all clients (MB)"
    assert panel.x_end == pytest.approx(6.0)
    assert panel.curves[0].x == pytest.approx([0.0, 6.0])
    drawn = chart(panel)
    assert drawn["layout"]["xaxis"]["title"]["text"] == "sent up by all clients (MB)"
    assert drawn["data"][0]["hovertemplate"].count("sent up by all clients (MB)") == 1
    assert panels_of(groups, "seconds")["test_accuracy"].x_label == "time of the run (seconds)"
    assert panels_of(groups, "seconds")["uplink_cost"].x_label == "iteration"


def test_a_small_x_axis_ends_where_the_curve_ends(tmp_path: Path) -> None:
    groups = group_runs([Run(write_run(tmp_path / "a", cost=1e-3))])
    assert panels_of(groups, "downlink-cost")["test_accuracy"].x_end == pytest.approx(0.02)


# Labels ------------------------------------------------------------------------------------


def test_own_labels_are_on_curves_and_page(tmp_path: Path) -> None:
    runs = [*two_seeds(tmp_path / "a"), write_run(tmp_path / "b", control={"policy": "full"})]
    page = write_report(runs, tmp_path / "out", labels=["FlexFL <V>", "all & always"])
    text = page.read_text(encoding="utf-8")
    assert "FlexFL &lt;V&gt;" in text
    assert "all &amp; always" in text
    assert "control.policy=full" not in text


@pytest.mark.parametrize("labels", [["A"], ["A", "B", "C"]])
def test_a_wrong_number_of_labels_is_refused_with_the_groups(tmp_path: Path, labels: list[str]) -> None:
    runs = [*two_seeds(tmp_path / "a"), write_run(tmp_path / "b", control={"policy": "full"})]
    with pytest.raises(InputError) as error:
        write_report(runs, tmp_path / "out", labels=labels)
    for words in (
        "label must be given 2 times",
        "1. control.policy=online (2 runs in",
        "2. control.policy=full",
    ):
        assert words in faults_of(error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("labels", [["A", "A"], ["A", " "]])
def test_labels_must_tell_groups_apart(tmp_path: Path, labels: list[str]) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", control={"policy": "full"})]
    with pytest.raises(InputError, match="label must differ between groups"):
        figure(runs, labels=labels)


# Files and faults --------------------------------------------------------------------------


def test_figures_in_several_formats(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    page = write_report([run], tmp_path / "out", formats=["svg", "pdf", "png", "svg"])
    heads = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    for name in ("loss", "accuracy", "costs", "queues", "components", "overview"):
        for kind, head in heads.items():
            assert (tmp_path / "out" / f"{name}.{kind}").read_bytes().startswith(head)
            assert f'href="{name}.{kind}"' in page.read_text(encoding="utf-8")
    assert b"/Subtype /Type3" not in (tmp_path / "out" / "accuracy.pdf").read_bytes()
    write_report([run], tmp_path / "again", formats=["svg", "pdf"])
    for kind in ("svg", "pdf"):
        first, second = (tmp_path / folder / f"overview.{kind}" for folder in ("out", "again"))
        assert first.read_bytes() == second.read_bytes()
    assert not list((tmp_path / "again").glob("*.png"))


def test_all_faults_are_listed_before_a_run_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        write_report([tmp_path / "none"], tmp_path / "out", x="byte", formats=["jpg"], targets=[80.0, 0.5])
    assert [str(fault) for fault in error.value.faults] == [
        f"x must be one of {', '.join(QUANTITIES)}, got 'byte'; did you mean bytes?",
        "format must list some of png, svg, pdf, got 'jpg'; did you mean png?",
        "target must be a test accuracy in (0, 1], got 80.0; give 0.8",
    ]


# From Python -------------------------------------------------------------------------------


def test_a_figure_for_a_notebook(tmp_path: Path) -> None:
    runs: list[Any] = [*two_seeds(tmp_path / "a"), Run(write_run(tmp_path / "b", control={"policy": "full"}))]
    drawn = figure(runs, x="compute-cost", labels=["ours", "theirs"], size=(3.5, 2.5))
    assert isinstance(drawn, Figure)
    assert drawn.get_size_inches().tolist() == [3.5, 2.5]
    (axes,) = drawn.axes
    assert axes.get_xlabel().replace("\n", " ") == "computing cost of all clients (unit of the spec)"
    assert axes.get_title(loc="left") == ""
    assert [line.get_xdata()[-1] for line in axes.get_lines()] == pytest.approx([12.0, 12.0])
    assert [text.get_text() for text in drawn.legends[0].get_texts()][:2] == ["ours", "theirs"]
    drawn.savefig(tmp_path / "figure.pdf")
    assert drawn._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_figure_of_several_metrics(tmp_path: Path) -> None:
    drawn = figure([write_run(tmp_path / "a")], y=["train_loss", "test_accuracy"])
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["Training loss", "Test accuracy"]
    with pytest.raises(InputError) as error:
        figure([tmp_path / "a"], y="accuracy", x="time")
    assert "y must be one of train_loss, test_loss" in faults_of(error)
    assert "got 'accuracy'; did you mean" in faults_of(error)
    assert "x must be one of iteration" in faults_of(error)


# Resources to accuracy ---------------------------------------------------------------------


def test_resources_to_accuracy_by_hand(tmp_path: Path) -> None:
    rows = resources_to_accuracy(two_seeds(tmp_path), [0.5, 0.75, 0.9])
    assert [row["target"] for row in rows] == [0.5, 0.75, 0.9]
    first, second, third = rows
    # 0.5 is reached by seed 1 at iteration 10, by seed 2 at 20.
    assert (first["seeds"], first["seeds_that_reach"]) == (2, 2)
    assert first["iterations"] == pytest.approx(15.0)
    assert first["iterations_deviation"] == pytest.approx(50**0.5, rel=1e-5)
    assert first["uplink_cost"] == pytest.approx((6.0 + 24.0) / 2)
    assert first["downlink_bytes"] == pytest.approx((1.0 + 4.0) / 2)
    assert first["seconds"] == pytest.approx((1.0 + 4.0) / 2)
    # 0.75 by seed 1 only.
    assert second["seeds_that_reach"] == 1
    assert second["iterations"] == 20.0
    assert second["iterations_deviation"] is None
    assert third["seeds_that_reach"] == 0
    assert third["iterations"] is None
    assert third["best_accuracy"] == pytest.approx(0.75)


def test_the_table_on_page_in_a_file_and_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    runs = [*two_seeds(tmp_path / "a"), write_run(tmp_path / "b", control={"policy": "full"})]
    options = ["--label", "FlexFL", "--label", "everything", "--target", "0.5", "--target", "0.75"]
    app(
        ["report", *map(str, runs), "--out", str(tmp_path / "out"), *options, "--x", "bytes"],
        standalone_mode=False,
    )
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    assert "until test accuracy 0.5: mean over seeds, of all clients" in printed
    words = next(line.split() for line in printed.splitlines() if line.startswith("FlexFL "))
    assert words == ["FlexFL", "15", "15", "15", "2.5", "15", "bytes", "2.5", "bytes", "2.5"]
    assert "FlexFL: 1 of 2 seeds" in printed
    assert "everything: not reached (best 0.6)" in printed

    with (tmp_path / "out" / "resources.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["target"]) for row in rows] == [
        ("FlexFL", "0.5"),
        ("everything", "0.5"),
        ("FlexFL", "0.75"),
        ("everything", "0.75"),
    ]
    assert [row["iterations"] for row in rows] == ["15.0", "20.0", "20.0", ""]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for text in ('href="resources.csv"', "Test accuracy 0.75", "not reached (best 0.6)", "15.0 ± 7.1"):
        assert text in page


def test_runs_without_a_test_accuracy_have_no_resources(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", evaluations={0: {"train_loss": 1.0}, 20: {"train_loss": 0.5}})
    (row,) = resources_to_accuracy([run], [0.5])
    assert (row["seeds"], row["best_accuracy"], row["iterations"]) == (0, None, None)
    page = write_report([run], tmp_path / "out", targets=[0.5])
    assert "no test accuracy recorded" in page.read_text(encoding="utf-8")


def test_the_page_on_figures_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "many-runs.md").read_text(encoding="utf-8")
    section = page.split("## Figures of your own runs\n")[1].split("\n## ")[0]
    two_seeds(tmp_path / "runs" / "online")
    two_seeds(tmp_path / "runs" / "baseline", control={"policy": "top-k"})
    monkeypatch.chdir(tmp_path)
    folders = [f"runs/{name}/{seed}" for name in ("online", "baseline") for seed in (1, 2)]
    (bash,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    for line in bash.strip().splitlines():
        words = [word for word in shlex.split(line)[1:] if "*" not in word]
        app([words[0], *folders, *words[1:]], standalone_mode=False)
    assert Path("runs/online/1/report/overview.pdf").is_file()
    (python,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(compile(python, "many-runs.md", "exec"), {})
    assert Path("accuracy.pdf").is_file()
    assert "top 1 %" in capsys.readouterr().out
    named = set(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))
    assert {name for cell in named for name in re.findall(r"`([\w-]+)`", cell)} == set(QUANTITIES)


# Worst client, charged and spent -----------------------------------------------------------


def test_the_worst_client_of_all_seeds_is_shown(tmp_path: Path) -> None:
    groups = group_runs([Run(path) for path in two_seeds(tmp_path / "a", budget={"uplink": 0.3})])
    uplink = row_of(groups[0]).costs["uplink"]
    assert uplink is not None
    assert str(uplink.worst) == "2 × budget (client 3, seed 2)"  # 0.2 · 3 of 0.3
    assert panels_of(groups)["uplink_cost"].notes == ("worst client: 2 × budget (client 3, seed 2)",)
    (tmp_path / "out").mkdir()
    page = write_page(groups, sections_of(groups), (), tmp_path / "out" / "report.html")
    assert "worst client: 2 × budget (client 3, seed 2)" in page.read_text(encoding="utf-8")


def test_many_groups_share_one_note_on_the_worst_client(tmp_path: Path) -> None:
    runs = [
        Run(write_run(tmp_path / str(n), cost=n / 10, budget={"uplink": 0.3}, control={"policy": f"p{n}"}))
        for n in range(1, 6)
    ]
    notes = panels_of(group_runs(runs))["uplink_cost"].notes
    assert notes == ("worst client of control.policy=p5: 5 × budget (client 3)",)
    several = panels_of(group_runs(runs[:2]))["uplink_cost"].notes
    assert [note.split(":")[0][-2:] for note in several] == ["p1", "p2"]


def test_what_is_charged_is_shown_where_it_differs(tmp_path: Path) -> None:
    """Spent 0.15 on average, charged 0.09."""
    run = write_run(tmp_path / "a", charged=0.06, budget={"compute": 0.1})
    groups = group_runs([Run(run)])
    compute = row_of(groups[0]).costs["compute"]
    assert compute is not None
    assert compute.charged is not None
    assert (compute.within, compute.charged_within) == ((False,), (True,))
    assert compute.charged.mean == pytest.approx(0.09)
    panel = panels_of(groups)["compute_cost"]
    assert [(curve.thin, curve.mean[-1]) for curve in panel.curves] == [
        (False, pytest.approx(0.15)),
        (True, pytest.approx(0.09)),
    ]
    assert [trace["line"]["width"] for trace in chart(panel)["data"][:2]] == [2, 1]
    assert panel.notes == ("worst client: 3 × budget (client 3, charged 1.8 ×)",)
    text = write_report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert "charged 0.09 (controlled)" in text
    assert "Thin line: charged: the expected cost λ(q)" in text
    agreeing = panels_of(group_runs([Run(write_run(tmp_path / "b", budget={"compute": 0.1}))]))
    assert not agreeing["compute_cost"].has_charged
