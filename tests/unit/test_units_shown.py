"""Costs as people read them: in their unit, in the form of their budget, equal to what is stored."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from flexfl.cli.deploy.runs import _status_text
from flexfl.cli.show import ProgressLine, show_evidence, show_outcomes, show_result
from flexfl.cli.spending import join_texts
from flexfl.cli.tables import verdict
from flexfl.errors import InputError
from flexfl.experiments import Cell, Outcome
from flexfl.report import reached, resources_to_accuracy
from flexfl.report.axes import axis_of
from flexfl.report.charts import chart
from flexfl.report.evidence import Evidence, Method
from flexfl.report.figures import draw_row
from flexfl.report.groups import Group, group_runs
from flexfl.report.panels import Panel, sections_of
from flexfl.report.summary import notes_of, row_of
from flexfl.results import Run
from flexfl.results.accounts import form_of
from flexfl.results.forms import Form, stored_form
from flexfl.results.observer import Live, Progress
from flexfl.spec import load_spec
from flexfl.units import COST_UNITS, convert, parse_amount, period_of, show
from runs import CLIENTS, write_run

BYTES = {"uplink": "byte", "downlink": "byte"}
BUDGET = {"compute": 0.5, "uplink": "2 kB / iteration", "downlink": "24 kB"}


def byte_run(path: Path, **how: Any) -> Run:
    """20 iterations; a client spends 1.5 kB of 2 kB on average, the server 20 kB of 24 kB in all."""
    given = {"cost": 1000.0, "budget": BUDGET, "units": BYTES, "pace": 0.5} | how
    return Run(write_run(path, **given))


def groups_of(*runs: Run) -> tuple[Group, ...]:
    return group_runs(runs)


def panels_of(*runs: Run) -> dict[str, Panel]:
    return {panel.key: panel for section in sections_of(groups_of(*runs)) for panel in section.panels}


def printed(width: int = 80, **how: Any) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, highlight=False, markup=False, **how), out


# Numbers and their units -------------------------------------------------------------------


@given(st.floats(1e-3, 1e13), st.sampled_from(COST_UNITS), st.integers(3, 8))
def test_what_is_shown_reads_back_to_the_digits_shown(value: float, unit: str, digits: int) -> None:
    text = show(value, unit, digits)
    assert "e+" not in text
    number, _, symbol = text.partition(" ")
    assert convert(f"{number} {symbol}", unit) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))


@given(st.integers(1, 99), st.sampled_from(["second", "minute", "hour", "day", "week", "month", "year"]))
def test_the_time_of_a_rate_reads_back(count: int, name: str) -> None:
    amount = parse_amount(f"1 MB / {count} {name}")
    assert parse_amount(f"1 MB / {period_of(amount.seconds)}").seconds == pytest.approx(amount.seconds)


# Forms -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "per", "limit"),
    [
        (None, "iteration", None),
        (0.25, "iteration", 0.25),
        ("2 kB / iteration", "iteration", 2e3),
        (["1 MB", "3 MB", "1 MB", "3 MB"], "run", 2e6),
        ("50 MB / month", "month", 50e6),
        (
            {"shared": [{"clients": [0, 1], "limit": "4 MB / 2 day"}], "others": "1 MB / 2 day"},
            "2 day",
            1.5e6,
        ),
        ({"shared": [{"clients": [0, 1], "limit": "4 MB"}]}, "run", None),  # others have no limit
    ],
)
def test_a_budget_has_the_form_in_which_it_was_given(given_: Any, per: str, limit: float | None) -> None:
    assert form_of(given_, CLIENTS, "byte") == Form("byte", per, limit)


def test_amounts_in_a_form_are_what_was_recorded(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a", budget=BUDGET | {"uplink": "5 MB / hour"})
    assert run.summary is not None
    costs = run.summary["average_cost"]
    down = stored_form(costs["downlink"])
    assert down == run.form("downlink") == Form("byte", "run", 24e3)
    total = costs["downlink"]["spent"] * down.factor(20, costs["downlink"]["budget"])
    assert total == pytest.approx(float(run.iterations["downlink_cost"].sum()))
    up = stored_form(costs["uplink"])
    assert up == run.form("uplink") == Form("byte", "hour", 5e6)
    rate = costs["uplink"]["spent"] * up.factor(20, costs["uplink"]["budget"])
    seconds = float(run.iterations["clock"][-1])
    assert rate == pytest.approx(float(run.iterations["uplink_cost_mean"].sum()) / seconds * 3600)
    assert math.isnan(up.factor(20, None))  # not timed yet
    assert up.against_budget(1.0, 20, None) == "– of 5 MB / hour"


# While a run goes on -----------------------------------------------------------------------


def progress_of(run: Run, iteration: int) -> Live:
    knobs = ("compute", "uplink", "downlink")
    spent = {knob: float(run.average_cost(knob)[iteration - 1]) for knob in knobs}
    forms = {knob: run.form(knob) for knob in knobs}
    budgets = {knob: run.budget(knob) for knob in knobs}
    more = {"state": "training"}
    return Live(20, iteration, {"test_accuracy": 0.75}, budgets, spent, 61.0, more, run.units, forms)


def test_the_line_of_a_log_speaks_the_unit(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a", cost=1000.0, budget=BUDGET | {"compute": 2000.0})
    console, out = printed(120)
    with ProgressLine(console, 20) as line:
        line.update(progress_of(run, 10))
    expected = "compute 1.5e+03/2000  uplink 1.5 kB of 2 kB / iteration  downlink 10 kB of 24 kB  "
    assert out.getvalue() == f"iteration 10/20  accuracy 0.750  {expected}\n"


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_breaks_the_line_between_knobs(width: int, tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a", units=BYTES | {"compute": "joule"}, budget=BUDGET | {"compute": "30 kJ"})
    console, out = printed(width, force_terminal=True, color_system=None)
    with ProgressLine(console, 20) as line:
        line.update(progress_of(run, 10))
    lines = out.getvalue()
    for amount in ("compute 15 kJ of 30 kJ", "uplink 1.5 kB of 2 kB / iteration", "downlink 10 kB of 24 kB"):
        assert amount in lines
    assert "spent  compute" in lines


@given(st.lists(st.integers(1, 30), max_size=6), st.integers(32, 100))
def test_joined_texts_fit_into_the_width(lengths: list[int], width: int) -> None:
    texts = [Text("x" * length) for length in lengths]
    joined = join_texts(texts, width).plain
    assert [part for part in joined.split() if part] == [text.plain for text in texts]
    assert max((len(line) for line in joined.splitlines()), default=0) <= width


def test_the_status_of_a_deployment_speaks_the_unit(tmp_path: Path) -> None:
    live = progress_of(byte_run(tmp_path / "a"), 10)
    live.write(tmp_path / "x.live.json")
    assert Live.read(tmp_path / "x.live.json") == live  # forms go through the file
    lines = _status_text("x", live).splitlines()
    assert "uplink 1.5 kB of 2 kB / iteration, downlink 10 kB of 24 kB" in lines[1]


def test_a_rate_is_shown_by_the_pace_so_far() -> None:
    forms = {"uplink": form_of("36 MB / hour", CLIENTS, "byte")}
    progress = Progress(10, budgets={"uplink": None}, rates={"uplink": (36e6, 3600.0)}, forms=forms)
    for iteration in range(3):
        record = dict.fromkeys(("compute_spent", "downlink_cost"), 0.0)
        progress.add(record | {"uplink_cost": np.full(CLIENTS, 9e3), "clock": 2.0 * (iteration + 1)})
    console, out = printed(120)
    with ProgressLine(console, 10) as line:
        line.update(progress)
    assert "uplink 16.2 MB of 36 MB / hour" in out.getvalue()  # 9 kB in 2 s


# When it is over ---------------------------------------------------------------------------


def test_the_closing_table_speaks_the_unit_and_says_that_nobody_was_over(tmp_path: Path) -> None:
    budget = BUDGET | {"compute": 4000.0, "uplink": "3 kB / iteration"}
    run = byte_run(tmp_path / "a", budget=budget)
    assert run.summary is not None
    console, out = printed()
    show_result(console, run.summary, run.directory)
    cells = [
        [cell.strip() for cell in line.split("│")] for line in out.getvalue().splitlines() if "│" in line
    ]
    rows = {row[1]: row[2:5] for row in cells}
    assert rows["uplink"] == ["1.5 kB", "3 kB / iteration", "50%"]
    assert rows["downlink"] == ["20 kB", "24 kB", "83%"]
    assert rows["compute"] == ["1.5e+03", "4000 / iteration", "38%"]
    assert "budgets kept: nobody exceeded its own; client 3 has spent most, 100.0% (uplink)" in out.getvalue()


def test_who_is_over_is_named(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a", budget={"uplink": "2.9 kB / iteration", "downlink": "24 kB"})
    assert run.summary is not None
    assert verdict(run.summary["average_cost"]) == "over budget: client 3 by 3.4% (uplink)"
    free = byte_run(tmp_path / "b", budget={})
    assert free.summary is not None
    assert verdict(free.summary["average_cost"]) == ""


def test_the_table_of_many_runs_fits_and_has_the_period_in_its_heading(tmp_path: Path) -> None:
    outcomes = []
    for seed in (1, 2):
        run = byte_run(tmp_path / str(seed), seed=seed)
        cell = Cell(f"quickstart, seed {seed}", load_spec("quickstart"), run.directory)
        outcomes.append(Outcome(cell, "done", 20, 0.5, run.summary))
    console, out = printed()
    show_outcomes(console, outcomes)
    text = out.getvalue()
    assert "/ iteration" in text
    assert "in all" in text
    assert text.count("1.5 of 2 kB") == text.count("20 of 24 kB") == 2
    assert max(map(len, text.splitlines()[:8])) <= 80
    mixed = byte_run(tmp_path / "3", seed=3, budget=BUDGET | {"uplink": "60 kB"})
    cell = Cell("other", load_spec("quickstart"), mixed.directory)
    console, out = printed(120)
    show_outcomes(console, [*outcomes, Outcome(cell, "done", 20, 0.5, mixed.summary)])
    assert "1.5 kB of 2 kB / iteration" in out.getvalue()
    assert "30 kB of 60 kB" in out.getvalue()


# Figures and pages -------------------------------------------------------------------------


def test_cost_panels_draw_what_is_stored_in_their_unit(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a")
    panels = panels_of(run)
    up, down = panels["uplink_cost"], panels["downlink_cost"]
    assert up.y_label == "average cost so far\n(kB per client and iteration)"
    assert down.y_label == "average cost so far\n(kB per iteration)"
    np.testing.assert_allclose(up.curves[0].mean * 1e3, run.average_cost("uplink"))
    assert up.budgets == (2.0,)
    assert up.budget_labels == ("budget 2 kB / iteration",)
    assert down.budgets == (1.2,)
    assert down.budget_labels == ("budget 24 kB (1.2 kB / iteration)",)
    assert panels["compute_cost"].budget_labels == ("budget",)  # an abstract cost stays a plain number
    assert panels["compute_cost"].unit == ""
    traces = chart(up)["data"]
    assert "%{y:.4~g} kB<br>" in traces[0]["hovertemplate"]
    assert traces[-1]["text"][-1] == "budget 2 kB / iteration"
    texts = [text.get_text() for text in draw_row([up, down]).axes[1].texts]
    assert texts == ["budget 24 kB (1.2 kB / iteration)"]


def test_runs_that_count_in_different_units_are_not_scaled(tmp_path: Path) -> None:
    panel = panels_of(byte_run(tmp_path / "a"), byte_run(tmp_path / "b", budget={"uplink": 3.0}, units={}))
    up = panel["uplink_cost"]
    assert up.unit == ""
    assert any("units differ" in note and "abstract" in note for note in up.notes)
    assert up.curves[0].mean[-1] == pytest.approx(1500.0)


@pytest.mark.parametrize(
    ("policies", "title", "section"),
    [
        (["online"], "Uplink queue", "Queues"),
        (["price"], "Uplink price", "Prices"),
        (["online", "price"], "Uplink queue or price", "Queues and prices"),
    ],
)
def test_queues_and_prices_have_the_name_of_what_the_policy_keeps(
    policies: list[str], title: str, section: str, tmp_path: Path
) -> None:
    runs = [byte_run(tmp_path / policy, control={"policy": policy}) for policy in policies]
    found = next(each for each in sections_of(groups_of(*runs)) if each.key == "queues")
    panel = next(each for each in found.panels if each.key == "uplink_queue")
    assert (panel.title, found.title) == (title, section)
    prices = "price" in policies
    assert panel.is_log == prices
    assert ("price (of 1 B), log scale" in panel.y_label) == prices
    layout, axes = chart(panel)["layout"], draw_row([panel]).axes[0]
    assert (layout["yaxis"].get("type") == "log") == prices == (axes.get_yscale() == "log")
    low, high = layout["yaxis"]["range"]
    assert panel.y_range == pytest.approx((10**low, 10**high) if prices else (low, high))
    drawn = panel.curves[0].mean * (1.0 if prices else 1e3)
    np.testing.assert_allclose(drawn, runs[0].iterations["uplink_queue_mean"])


def test_one_knob_may_have_another_policy(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a", control={"policy": "price", "compute": {"policy": "online"}})
    panels = panels_of(run)
    assert panels["compute_queue"].title == "Computing queue"
    assert panels["uplink_queue"].title == "Uplink price"


def test_an_axis_of_costs_has_their_unit_and_only_one(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a")
    axis = axis_of("uplink-cost", groups_of(run))
    assert (axis.label, axis.divisor) == ("uplink cost of all clients (kB)", 1e3)
    assert axis.at_evaluations(run)[-1] == pytest.approx(20 * 4 * 1.5)
    plain = axis_of("compute-cost", groups_of(run))
    assert (plain.label, plain.divisor) == ("computing cost of all clients (unit of the spec)", 1.0)
    with pytest.raises(InputError, match=r"x must be in one unit, not in several \(abstract, byte\)"):
        axis_of("cost", groups_of(run))


def test_summary_and_resources_speak_the_unit(tmp_path: Path) -> None:
    runs = [byte_run(tmp_path / str(seed), seed=seed, cost=800.0 + 200 * seed) for seed in (1, 2)]
    (group,) = groups_of(*runs)
    costs = row_of(group).costs
    up, down, compute = costs["uplink"], costs["downlink"], costs["compute"]
    assert up is not None
    assert down is not None
    assert compute is not None
    assert (up.spent_text, up.budget_text) == ("1.65 ± 0.21 kB", "2 kB / iteration")
    assert (down.spent_text, down.budget_text) == ("22.0 ± 2.8 kB", "24 kB")
    assert compute.budget_text == "0.5"
    (row,) = reached([runs[0]], [0.6])
    assert row.text("uplink-cost") == row.mean_text("uplink-cost") == "120 kB"
    assert row.text("compute-cost") == "1.2e+05"
    (plain,) = resources_to_accuracy([runs[0]], [0.6])
    assert plain["uplink_cost"] == pytest.approx(120e3)  # files stay in base units


def test_evidence_speaks_the_unit_where_there_is_no_budget(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a", budget={"downlink": "24 kB"})
    evidence = Evidence("fig", "Figure", (Method("mine", (run,)),), ())
    console, out = printed()
    show_evidence(console, evidence)
    assert "1.5 kB" in out.getvalue()
    assert "83.3%" in out.getvalue()
    evidence.write(tmp_path / "out")
    assert "| 1.5 kB |" in (tmp_path / "out" / "fig.md").read_text()
    assert "1500.0" in (tmp_path / "out" / "fig.csv").read_text()


def test_joint_budgets_are_noted_in_their_unit(tmp_path: Path) -> None:
    run = byte_run(tmp_path / "a")
    path = run.directory / "summary.json"
    worst = {"who": "client 1", "charged": 1900.0, "budget": 2000.0}
    cost = {"charged": 1500.0, "budget": 2000.0, "worst": worst, "unit": "byte", "per": "run", "limit": 40e3}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"joint_budgets": {"line": cost}}))
    (group,) = groups_of(Run(run.directory))
    expected = "budget.line was charged 1.5 kB, at most 1.9 kB of 2 kB / iteration (client 1)"
    assert notes_of(group) == [expected]
