"""Methods compared at equal budgets: the arithmetic, what is tuned, the tables, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from rich.console import Console

from flexfl.cli.compare_table import show_comparison
from flexfl.cli.completion import methods as offered
from flexfl.cli.completion import specs
from flexfl.errors import InputError
from flexfl.experiments.compare import load_plan
from flexfl.experiments.methods import load_method, with_tuning
from flexfl.report.compare import Comparison, Contender, best_of, largest_share, mean_over_spending
from flexfl.report.compare_page import section_of, write_comparison
from flexfl.report.compare_tables import NEVER, results_table, target_table, tuning_table
from flexfl.report.frontier_cells import Point
from flexfl.report.page import charts_by_id
from flexfl.results import Run
from flexfl.sim.engine import Engine
from flexfl.sim.run import prepared
from flexfl.spec.load import methods, shipped
from runs import CLIENTS, write_run

BUDGET = {"compute": 100.0, "uplink": 0.3, "downlink": 100.0}
ACCURACIES = (0.1, 0.5, 0.9)


def run(folder: Path, accuracies: tuple[float, ...] = ACCURACIES, seed: int = 1, cost: float = 0.2) -> Run:
    """20 iterations, evaluated evenly; a client spends 1.5 × cost of 0.3 on the uplink in each of them."""
    places = np.linspace(0, 20, len(accuracies)).astype(int).tolist()
    evaluations = {
        place: {"test_accuracy": accuracy, "seconds": float(place)}
        for place, accuracy in zip(places, accuracies, strict=True)
    }
    path = folder / f"seed-{seed}"
    return Run(write_run(path, seed=seed, cost=cost, evaluations=evaluations, budget=BUDGET))


def point(folder: Path, *accuracies: float, cost: float = 0.2, label: str = "") -> Point:
    return Point((0,), label, (run(folder, tuple(accuracies) or ACCURACIES, cost=cost),))


# The arithmetic ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "accuracy", "end", "area"),
    [
        ([0, 1, 2], [0.0, 0.8, 0.8], 2.0, 0.6),  # a triangle and a rectangle
        ([0, 1, 2], [0.0, 0.8, 0.8], 4.0, 0.7),  # who spends less keeps the last accuracy
        ([0, 1, 4], [0.0, 0.8, 0.2], 2.0, 0.55),  # what is spent beyond does not count
        ([0, 2, 2, 2], [0.0, 0.5, 0.1, 0.8], 2.0, 0.4),  # of several evaluations the last counts
        ([0, 0, 0], [0.1, 0.2, 0.3], 5.0, 0.3),  # nothing was spent
        ([1, 2, 3], [0.5, np.nan, 0.7], 2.0, 0.525),  # the first accuracy holds before, gaps are bridged
    ],
)
def test_area(spent: list[float], accuracy: list[float], end: float, area: float) -> None:
    assert mean_over_spending(np.array(spent, float), np.array(accuracy), end) == pytest.approx(area)


def test_area_of_nothing() -> None:
    assert np.isnan(mean_over_spending(np.empty(0), np.empty(0), 1.0))
    assert np.isnan(mean_over_spending(np.zeros(1), np.ones(1), 0.0))


def test_tuning_takes_the_most_accurate_that_keeps_its_budgets(tmp_path: Path) -> None:
    kept, better, over, far = (
        point(tmp_path / "a", 0.1, 0.5),
        point(tmp_path / "b", 0.1, 0.6, cost=0.2018),  # 0.9 % over: still held
        point(tmp_path / "c", 0.1, 0.9, cost=0.205),
        point(tmp_path / "d", 0.1, 0.95, cost=0.4),
    )
    failed = Point((0,), "failed", ())
    assert largest_share(over) == pytest.approx(1.025)
    assert best_of([failed, kept, over, better]) == 3
    assert best_of([kept, kept]) == 0
    assert best_of([far, over]) == 1  # none keeps them: the one that exceeds them least
    alike = point(tmp_path / "e", 0.1, 0.92, cost=0.206)
    assert best_of([far, over, alike]) == 2  # as much over, but for rounding, and more accurate
    assert best_of([failed]) is None


def comparison(tmp_path: Path) -> Comparison:
    quick = Point((1,), "rate=0.1", tuple(run(tmp_path / "quick", (0.1, 0.85, 0.9), seed) for seed in (1, 2)))
    slow = Point((0,), "", (run(tmp_path / "slow", (0.1, 0.3, 0.7), cost=0.4),))
    tried = (point(tmp_path / "tried", 0.1, 0.3, label="rate=1"), Point((1,), "rate=0.1", quick.runs[:1]))
    contenders = (Contender("quick", quick, "Author, 2020", tried, 1), Contender("slow", slow))
    return Comparison("base", contenders, (0.8, 0.95), missing=("gone",))


def test_rows_have_the_resources_to_a_target(tmp_path: Path) -> None:
    compared = comparison(tmp_path)
    quick, slow = compared.rows()
    # 10 iterations of 0.2 · (0 + 1 + 2 + 3) over four clients; the server 0.2 in each.
    assert quick["iterations_to_0.80"] == 10
    assert quick["uplink_cost_to_0.80"] == quick["compute_cost_to_0.80"] == pytest.approx(12.0)
    assert quick["downlink_cost_to_0.80"] == pytest.approx(2.0)
    assert quick["seeds_that_reach_0.80"] == 2
    assert (quick["uplink_bytes_to_0.95"], slow["iterations_to_0.80"]) == (None, None)
    assert quick["uplink_share"] == pytest.approx(1.0)
    assert (quick["over_budget"], slow["over_budget"]) == (False, True)
    assert (quick["settings"], quick["tried"], slow["tried"]) == ("rate=0.1", 2, 0)
    # The budget of the run is 20 · 0.3 for each client: `slow` has spent it after ten iterations.
    assert compared.ends["uplink-cost"] == pytest.approx(20 * 0.3 * CLIENTS)
    assert quick["area_uplink_cost"] == pytest.approx((0.1 + 2 * 0.85 + 0.9) / 4)
    assert slow["area_uplink_cost"] == pytest.approx((0.1 + 0.3) / 2)
    # In bytes `slow` sends most: `quick` has sent half of that when it ends, and keeps its accuracy.
    assert quick["area_bytes"] == pytest.approx(0.5 * (0.1 + 2 * 0.85 + 0.9) / 4 + 0.5 * 0.9)
    assert "averaged_accuracy" not in quick


def test_tables_say_never_and_what_was_tuned(tmp_path: Path) -> None:
    compared = comparison(tmp_path)
    table = results_table(compared)
    assert table.rows[0][:2] == ("quick (Author, 2020)", "2")
    assert table.rows[1][table.heads.index("uplink")] == "200.0% !"
    assert target_table(compared, 0.95).rows[0][1:] == ("0 of 2", *[NEVER] * 6)
    tuned = tuning_table(compared)
    assert tuned is not None
    assert tuned.rows == (("quick", "rate=0.1", "0.900", "2", "rate=1 (0.300); rate=0.1 (0.900)"),)
    alone = Comparison("base", compared.contenders[1:])
    assert tuning_table(alone) is None


def test_an_averaged_model_has_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = comparison(tmp_path)
    for one in compared.contenders:
        for each in one.point.runs:
            monkeypatch.setitem(each.evaluations, "average_test_accuracy", np.array([0.1, 0.8, 0.95]))
    assert compared.rows()[0]["averaged_accuracy"] == pytest.approx(0.95)
    assert "averaged model" in results_table(compared).heads


def test_files_and_page(tmp_path: Path) -> None:
    compared = comparison(tmp_path)
    out = tmp_path / "out"
    page = write_comparison(compared, out, ["png"])
    assert {path.name for path in out.iterdir()} == {
        "compare.html",
        "compare.md",
        "compare.csv",
        "compare.json",
        "compare-curves.csv",
        "compare.png",
    }
    text = page.read_text(encoding="utf-8")
    assert "Author, 2020" in text
    assert "Without a finished run: gone" in text
    for chart in charts_by_id([section_of(compared)]).values():
        go.Figure(chart)
    with (out / "compare.csv").open(encoding="utf-8") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["quick", "slow"]
    with (out / "compare-curves.csv").open(encoding="utf-8") as file:
        last = list(csv.DictReader(file))[2]
    assert float(last["uplink_cost_per_client"]) == pytest.approx(6.0)
    assert json.loads((out / "compare.json").read_text())["tuned"]["quick"][0]["settings"] == "rate=1"
    assert "| slow | 0 of 1 | never |" in (out / "compare.md").read_text()
    console = Console(width=140, record=True, file=io.StringIO())
    show_comparison(console, compared)
    shown = console.export_text()
    assert "quick: rate=0.1, best of 2" in shown
    assert "without a finished run: gone" in shown


def test_axes_have_names_and_units(tmp_path: Path) -> None:
    labels = [panel.x_label for panel in section_of(comparison(tmp_path)).panels]
    assert labels[0] == "uplink cost spent by a client on average (unit of the spec)"
    assert labels[1].startswith("sent up and down (")
    assert labels[2] == "iteration"
    notes = section_of(comparison(tmp_path / "more")).panels[0].notes
    assert "the budget for the whole run is 6" in notes
    ends = [float(panel.curves[0].x[-1]) for panel in section_of(comparison(tmp_path / "again")).panels]
    assert ends[0] == pytest.approx(6.0)


# Methods -------------------------------------------------------------------------------------

SMALL = ("data.name=fashion-mini", "data.clients=10", "train.iterations=3", "train.batch_size=4")


def file(tmp_path: Path, text: str, name: str = "mine.toml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", methods())
def test_every_method_that_ships_names_its_paper(name: str) -> None:
    method = load_method(name)
    assert method.paper
    assert "control" in method.given
    assert name in offered("")
    assert name not in specs("")
    assert name not in shipped()


@pytest.mark.parametrize("name", methods())
def test_methods_that_ship_are_on_equal_terms(name: str, tmp_path: Path) -> None:
    plan = load_plan([name], tmp_path, base="frugal", seeds="1-2")
    assert len(plan.tuning) <= 9
    chosen = dict.fromkeys([name], 0)
    assert len(plan.cells(chosen)) == 2
    specs = [cell.spec for cell in plan.tuning + plan.cells(chosen)]
    assert {(spec.budget.uplink, spec.data.clients, spec.train.iterations) for spec in specs} == {
        (0.005, 100, 4000)
    }
    assert {spec.train.schedule["kind"] for spec in specs} == {"wsd"}
    assert all(spec.train.average for spec in specs)


@pytest.mark.parametrize("name", methods())
def test_methods_that_ship_run_within_their_budget_for_computing(name: str, tmp_path: Path) -> None:
    plan = load_plan([name], tmp_path, base="frugal", overrides=SMALL, tuned=False)
    [cell] = plan.cells(plan.chosen())
    problem = prepared(cell.spec)
    engine = Engine(problem)
    records = [engine.step() for _ in range(3)]
    assert np.isfinite(engine.params).all()
    if cell.spec.control.policy not in ("online", "price"):  # whose q follows what was spent
        of_one = problem.setup.costs["compute"].mean_cost  # type: ignore[attr-defined]
        assert all((one["compute_prob"] * of_one <= 0.25 + 1e-9).all() for one in records)


def test_a_method_with_a_policy_brings_its_own_compressors(tmp_path: Path) -> None:
    base = file(tmp_path, '[control]\npolicy = "price"\n[compress]\nuplink = "rounded"\n', "base.toml")
    whole = file(tmp_path, '[control]\npolicy = "paced"\n', "whole.toml")
    change = file(tmp_path, "[train]\nlearning_rate = 0.5\n", "change.toml")
    plan = load_plan([whole, change, base], tmp_path / "out", base=base)
    found = [cell.spec for cell in plan.cells(plan.chosen())]
    assert [spec.control.policy for spec in found] == ["paced", "price", "price"]
    assert [spec.compress.uplink["kind"] for spec in found] == ["top-k", "rounded", "rounded"]
    assert [spec.train.learning_rate for spec in found] == [0.1, 0.5, 0.1]


def test_of_a_spec_that_ships_its_method_is_taken(tmp_path: Path) -> None:
    plan = load_plan(["fashion"], tmp_path, base="quickstart", overrides=["train.iterations=7"])
    [cell] = plan.cells(plan.chosen())
    assert (cell.spec.control.policy, cell.spec.data.name, cell.spec.train.iterations) == (
        "online",
        "fashion-mini",
        7,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[budget]\nuplink = 0.5\n", "mine: budget.uplink must be the base's, 0.01: methods are compared on"),
        ("[data]\nclients = 7\n", "mine: data.clients must be the base's, 100"),
        ('[costs]\nuplink = "constant"\n', "mine: costs.uplink.kind must be the base's, fading"),
        ("[train]\niterations = 7\n", "mine: train.iterations must be the base's, 3000"),
        ('[model]\nname = "cnn"\n', "mine: model.name must be the base's, mlp"),
        ("[tune]\nbudget.uplink = [0.01, 0.5]\n", "mine: budget.uplink must be the base's, 0.01"),
        ("[tune]\ncontrol.tradeof = [0.1]\n", "mine: control.tradeof is not a parameter of price"),
        ("[tune]\ncontrol.step = 0.1\n", "tune.control.step must list the values of a setting"),
        ("tune = 3\n", "tune must be a table"),
        ("paper = 3\n", "paper must be text in quotes"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_plan([file(tmp_path, text)], tmp_path / "out", base="quickstart")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_setting_of_the_base_may_be_repeated(tmp_path: Path) -> None:
    text = "[budget]\nuplink = 0.01\n[train]\nlearning_rate = 0.2\n"
    assert load_plan([file(tmp_path, text)], tmp_path / "out", base="quickstart").entries


def test_a_method_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="METHOD must be a method or spec that ships, or a TOML file"):
        load_method("fedavgg")
    other = tmp_path / "other"
    other.mkdir()
    twice = [file(tmp_path, "[train]\n"), file(other, "[train]\n")]
    with pytest.raises(InputError, match="must have different names"):
        load_plan(twice, tmp_path / "out")


def test_grids_of_the_command(tmp_path: Path) -> None:
    given = [load_method("online"), load_method("price")]
    first, second = with_tuning(given, ["train.learning_rate=0.1,0.2", "online:control.tradeoff=0.5"])
    assert {axis.key: axis.values for axis in first.axes} == {
        "control.tradeoff": [0.5],
        "train.learning_rate": [0.1, 0.2],
    }
    assert [axis.key for axis in second.axes] == ["train.learning_rate"]
    with pytest.raises(InputError) as caught:
        with_tuning(given, ["rate=1", "nobody:train.learning_rate=1", "train.learning_rate="])
    assert len(caught.value.faults) == 3
    plan = load_plan(["online", "price"], tmp_path, seeds="3-4", tune=["control.step=0.1"], tuned=False)
    assert plan.tuning == []


def test_a_setting_for_all_that_a_method_brings_itself_is_refused(tmp_path: Path) -> None:
    for override in ("train.learning_rate=0.5", "control.policy=online", "compress.uplink.kind=sign"):
        with pytest.raises(InputError, match="--set must not be of what kimad sets itself"):
            load_plan(["kimad"], tmp_path, base="quickstart", overrides=[override])
    load_plan(["kimad"], tmp_path, base="quickstart", overrides=["train.iterations=5"])


def test_a_grid_is_checked_by_its_combinations(tmp_path: Path) -> None:
    tune = ["train.local.kind=sgd,adamw", "train.local.steps=2,3"]
    plan = load_plan(["price"], tmp_path, base="quickstart", tune=tune)
    assert len(plan.tuning) == 4 * 3  # times the learning rates of the method


def test_methods_whose_runs_would_share_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("a b", "a-b"):
        (tmp_path / f"{name}.toml").write_text('[control]\npolicy = "price"\n')
    files = [str(tmp_path / f"{name}.toml") for name in ("a b", "a-b")]
    with pytest.raises(InputError, match="must have different names"):
        load_plan(files, tmp_path, base="quickstart")


def test_names_with_brackets_and_targets_of_three_digits(tmp_path: Path) -> None:
    contenders = tuple(
        Contender(name, point(tmp_path / str(place)), paper)
        for place, (name, paper) in enumerate([("my", "One"), ("my (2)", ""), ("my (2)b", "Two (2020)")])
    )
    compared = Comparison("brackets", contenders, (0.081, 0.084, 0.9))
    page = write_comparison(compared, tmp_path / "out", ["svg"]).read_text()
    assert "Two (2020" in page
    columns = set(compared.rows()[0])
    assert {"seeds_that_reach_0.081", "seeds_that_reach_0.084", "seeds_that_reach_0.90"} <= columns
