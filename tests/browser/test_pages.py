"""The interactive pages as a person uses them: switch, zoom, read values, see where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from flexfl.report import write_report
from flexfl.report.evidence import Evidence, Method
from flexfl.report.evidence_page import write_evidence
from flexfl.report.frontier import Frontier
from flexfl.report.frontier_cells import Axis, Point
from flexfl.report.frontier_page import write_frontier
from flexfl.results import Run
from runs import write_run

ACCURACY, LOSS, OTHER = "#chart-fig1-test_accuracy", "#chart-fig1-train_loss", "#chart-fig2-test_accuracy"


def method(folder: Path, label: str, best: float) -> Method:
    runs = []
    for seed in (1, 2):
        points = {
            5 * n: {"train_loss": 2 - n / 4, "test_accuracy": best - 0.1 * (4 - n) + seed / 100, "seconds": n}
            for n in range(5)
        }
        runs.append(Run(write_run(folder / label / f"seed-{seed}", seed=seed, evaluations=points)))
    return Method(label, tuple(runs))


@pytest.fixture
def figures(page: Page, tmp_path: Path) -> Page:
    methods = tuple(method(tmp_path, label, best) for label, best in (("Proposed", 0.9), ("Baseline", 0.7)))
    evidence = [Evidence(key, key, methods, (0.8,)) for key in ("fig1", "fig2")]
    page.goto(write_evidence(evidence, "FlexFL on data", tmp_path / "out").as_uri())
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    return page


def shown(page: Page, chart: str) -> dict[str, bool]:
    """Which methods a chart draws, by their lines."""
    traces: list[Any] = page.evaluate(
        "place => document.querySelector(place).data.map(t => [t.name ?? '', t.mode, t.visible ?? true])",
        chart,
    )
    return {name: visible for name, mode, visible in traces if mode == "lines" and name not in ("", "budget")}


def x_range(page: Page, chart: str) -> list[float]:
    return page.evaluate("place => document.querySelector(place).layout.xaxis.range", chart)


def plot(page: Page, chart: str) -> Locator:
    return page.locator(f"{chart} .nsewdrag")


def test_a_method_is_switched_off_and_on_in_all_charts_of_its_figure(figures: Page) -> None:
    button = figures.locator("#fig1 nav button", has_text="Baseline")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    for chart in (ACCURACY, LOSS):
        assert shown(figures, chart) == {"Proposed": True, "Baseline": False}
    assert figures.locator(f"{ACCURACY} .scatterlayer .js-line").count() == 2  # one line, one band
    assert shown(figures, OTHER) == {"Proposed": True, "Baseline": True}
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert shown(figures, ACCURACY) == {"Proposed": True, "Baseline": True}


def test_a_double_click_shows_one_method_alone_and_then_all_again(figures: Page) -> None:
    button = figures.locator("#fig1 nav button", has_text="Baseline")
    button.dblclick()
    assert shown(figures, ACCURACY) == {"Proposed": False, "Baseline": True}
    assert shown(figures, OTHER) == {"Proposed": True, "Baseline": True}
    button.dblclick()
    assert shown(figures, ACCURACY) == {"Proposed": True, "Baseline": True}


def test_zoom_by_dragging_and_back_by_a_double_click(figures: Page) -> None:
    before = x_range(figures, ACCURACY)
    place = plot(figures, ACCURACY)
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    figures.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.2 * box["height"])
    figures.mouse.down()
    figures.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    figures.mouse.up()
    zoomed = x_range(figures, ACCURACY)
    assert zoomed[0] == pytest.approx(5, abs=0.5)
    assert zoomed[1] == pytest.approx(15, abs=0.5)
    assert x_range(figures, LOSS) == before
    place.dblclick()
    figures.wait_for_function(
        "([place, end]) => document.querySelector(place).layout.xaxis.range[1] === end",
        arg=[ACCURACY, before[1]],
    )


def test_pointing_at_a_curve_tells_its_values_and_its_runs(figures: Page, tmp_path: Path) -> None:
    place = plot(figures, ACCURACY)
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    figures.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)  # iteration 10, near the upper curve
    label = figures.locator(f"{ACCURACY} .hoverlayer .hovertext")
    expect(label).to_contain_text("Proposed")
    expect(label).to_contain_text("iteration 10")
    expect(label).to_contain_text("0.715 (0.7079 to 0.7221)")
    expect(label).to_contain_text(f"from 2 runs in {tmp_path / 'Proposed'}")


def test_every_run_is_listed(figures: Page, tmp_path: Path) -> None:
    figures.locator("#fig1 details summary").click()
    rows = figures.locator("#fig1-runs tbody tr")
    expect(rows).to_have_count(4)
    for row, label in ((0, "Proposed"), (3, "Baseline")):
        expect(rows.nth(row)).to_contain_text(label)
        expect(rows.nth(row)).to_contain_text(str(tmp_path / label))


def test_it_fits_a_phone(figures: Page) -> None:
    figures.set_viewport_size({"width": 390, "height": 800})
    figures.wait_for_timeout(300)  # plotly fits its charts after the window
    wide = figures.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390


def test_the_report_of_a_run(page: Page, tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"seed-{seed}", seed=seed) for seed in (1, 2)]
    page.goto(write_report(folders, tmp_path / "report").as_uri())
    expect(page.locator("#chart-test_accuracy .main-svg").first).to_be_visible()
    button = page.locator("nav button")
    button.click()
    assert shown(page, "#chart-test_accuracy") == {"online": False}


def test_the_page_of_a_frontier(page: Page, tmp_path: Path) -> None:
    axes = Axis("budget.uplink", (0.01, 0.1), ("0.01", "0.1")), Axis("budget.downlink", (0.2,), ("0.2",))
    points = []
    for place, value in enumerate(axes[0].values):
        budget = {"uplink": value, "downlink": 20.0, "compute": 20.0}
        run = Run(write_run(tmp_path / str(place), cost=value / 3, budget=budget))
        points.append(Point((place, 0), f"uplink={value:g}, downlink=0.2", (run,)))
    found = Frontier("quick", axes, tuple(points), (0.5, 0.99))
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(write_frontier(found, tmp_path / "out").as_uri())
    expect(page.locator("#chart-map-0 .heatmaplayer image")).to_have_count(1)
    expect(page.locator("#chart-spent-uplink .main-svg").first).to_be_visible()
    expect(page.locator("#cheapest")).to_contain_text("not reached: the best is 0.600 with uplink=0.01")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1200, "height": 800})
    plot(page, "#chart-map-0").hover(position={"x": 30, "y": 30})
    label = page.locator("#chart-map-0 .hoverlayer .hovertext")
    expect(label).to_contain_text("uplink=0.01, downlink=0.2")
    expect(label).to_contain_text("accuracy 0.600")
    expect(label).to_contain_text("50% of the budget")


@pytest.mark.parametrize("width", [390, 1200])
def test_no_number_of_the_summary_is_cut_off(page: Page, tmp_path: Path, width: int) -> None:
    folders = [
        write_run(tmp_path / f"{policy}-{seed}", seed=seed, charged=0.07, control={"policy": policy})
        for policy in ("online", "full")
        for seed in (1, 2)
    ]
    page.set_viewport_size({"width": width, "height": 800})
    labels = ["FlexFL (online)", "full"]
    page.goto(write_report(folders, tmp_path / "report", labels=labels, targets=[0.65]).as_uri())
    expect(page.locator("#summary")).to_contain_text("worst client: 1.2 × budget (client 3, seed 1")
    expect(page.locator("#summary")).to_contain_text("(controlled)")
    expect(page.locator("#resources")).to_contain_text("1 of 2 seeds")
    for part in ("#summary .scroll", "#resources .scroll"):
        inside, outside = page.locator(part).evaluate("place => [place.scrollWidth, place.clientWidth]")
        assert inside <= outside
