"""Pictures of what the theory says: of a plan before a run, and of Theorem 1 beside a finished run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from flexfl.arrays import FloatArray
from flexfl.errors import Fault, InputError
from flexfl.parameters import KNOBS
from flexfl.report.figures import GRID, INK, MUTED, new_figure, save_figure
from flexfl.report.style import BUDGET_COLOUR, line_style
from flexfl.results import Run
from flexfl.theory import Constants, Convergence, convergence_bound, convergence_over_time, violation_bound

TERMS = {
    "start": "start, forgotten with time",
    "computing": "computing rarely, noise",
    "client_residual": "kept back by clients",
    "server_residual": "kept back by the server",
}
"""The terms of Theorem 1, in words."""
_PANEL = (5.0, 4.4)
_POINTS = 200
_LOW = 1e-4


def write_plan_figure(plan: Mapping[str, Any], path: Path) -> Path:
    """Draw a plan: Theorem 1 by term and Theorem 2 by knob, over T, and the forecast of spending.

    Args:
        plan: as `flexfl plan --json` prints it.
        path: the file; its suffix gives the format.
    """
    figure = new_figure(3 * _PANEL[0], _PANEL[1])
    grid = figure.add_gridspec(1, 3, width_ratios=(1.0, 1.0, 0.8))
    first, second, third = (figure.add_subplot(grid[0, place]) for place in range(3))
    _draw_convergence(first, plan)
    _draw_violations(second, plan)
    _draw_spending(third, plan)
    save_figure(figure, path)
    return path


def write_run_figure(run: Run, plan: Mapping[str, Any], path: Path, *, heaviest: float = 1.0) -> Path:
    """Draw the terms of Theorem 1 of a run, from what it has recorded, and ‖∇f‖² of the plan's trial.

    Args:
        run: the run.
        plan: a plan of the same spec, for the constants.
        path: the file; its suffix gives the format.
        heaviest: the largest N·w of any client: what clients keep counts at most its square.
    """
    terms = run_terms(run, constants_of(plan), heaviest=heaviest)
    done = np.arange(1.0, len(np.asarray(terms.total)) + 1)
    figure = new_figure(1.5 * _PANEL[0], _PANEL[1])
    axes = figure.add_subplot()
    _draw_terms(axes, done, terms, plan)
    _finish(axes, _title(plan, "Theorem 1 on this run"), "iterations T")
    save_figure(figure, path)
    return path


def run_terms(run: Run, constants: Constants, *, heaviest: float = 1.0) -> Convergence:
    """Return the terms of Theorem 1 for every T of a run, from what it has recorded."""
    recorded = run.iterations
    if not len(recorded["iteration"]):
        rule, remedy = "must hold a run with iterations", "run it first"
        raise InputError([Fault("DIR", rule, str(run.directory), remedy)], "the command")
    return convergence_over_time(
        constants,
        learning_rate=_largest_rate(run),
        server_kept=recorded["downlink_objective"],
        client_kept=heaviest**2 * recorded["uplink_objective_mean"],
        inverse_prob=recorded["compute_objective_mean"],
    )


def _largest_rate(run: Run) -> float:
    """Return the largest η_t of a run: Theorem 1 is for a constant one."""
    recorded = run.iterations["learning_rate"]
    known = np.isfinite(recorded)
    return float(recorded[known].max() if known.any() else run.spec["train"]["learning_rate"])


def constants_of(plan: Mapping[str, Any]) -> Constants:
    """Return the constants that a plan has estimated; the largest, since they bound every client."""
    found = plan["estimates"]
    L, sigma, epsilon = (float(found[name]["largest"]) for name in ("smoothness", "variance", "divergence"))
    return Constants(L, sigma, epsilon, gap=max(0.0, float(found["loss"]["mean"])))


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan in a JSON file.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        constants_of(plan)
        return plan
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule, remedy = f"must be a plan ({error})", "write one with: flexfl plan SPEC"
        raise InputError([Fault("plan", rule, str(path), remedy)], "the command") from error


# Panels ----------------------------------------------------------------------------------------------


def _title(plan: Mapping[str, Any], what: str) -> str:
    """Return the title of a panel with terms, which bound nothing if the learning rate is too large."""
    limit = plan["largest_learning_rate"]
    if limit is not None and plan["learning_rate"] > limit:
        return f"{what}: its terms (η is above 1/(4Lp))"
    return f"{what}: average of ‖∇f‖², at most"


def _draw_convergence(axes: Axes, plan: Mapping[str, Any]) -> None:
    done = np.unique(np.geomspace(1, 10 * plan["iterations"], _POINTS))
    r, e = plan["residuals"] or (np.nan, np.nan)
    terms = convergence_bound(
        constants_of(plan),
        learning_rate=plan["learning_rate"],
        iterations=done,
        server_residual=np.full(len(done), r),
        client_residual=np.full(len(done), e),
        inverse_prob=np.full(len(done), plan["computing"]["reached"]),
    )
    _draw_terms(axes, done, terms, plan)
    _mark_end(axes, plan["iterations"])
    _finish(axes, _title(plan, "Theorem 1"), "iterations T")


def _draw_terms(axes: Axes, done: FloatArray, terms: Convergence, plan: Mapping[str, Any]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylabel("average of ‖∇f‖² up to T", fontsize=9, color=MUTED)
    with np.errstate(invalid="ignore"):
        known = [np.nan_to_num(np.asarray(getattr(terms, name))) for name in TERMS]
        axes.plot(done, np.sum(known, axis=0), color=INK, linewidth=2.0, label="their sum")
    for place, (name, label) in enumerate(TERMS.items()):
        values = np.asarray(getattr(terms, name), dtype=float)
        if np.isfinite(values).any() and np.nanmax(values) > 0:
            axes.plot(done, np.where(values > 0, values, np.nan), color=line_style(place).colour, label=label)
    measured = np.asarray(plan["gradients"], dtype=float).reshape(-1, 2)
    if len(measured):
        average = np.cumsum(measured[:, 1]) / np.arange(1, len(measured) + 1)
        axes.plot(measured[:, 0] + 1, average, "o", color=INK, markersize=4, label="measured in the trial")


def _draw_violations(axes: Axes, plan: Mapping[str, Any]) -> None:
    done = np.geomspace(10, 100 * plan["iterations"], _POINTS)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for place, knob in enumerate(KNOBS):
        colour = line_style(place).colour
        if found := plan["violations"].get(knob):
            V, W, D = (found[name] for name in ("tradeoff", "initial_queue", "largest"))
            bound = violation_bound(V, W, done, D, found["largest_cost"] ** 2 / 2) / found["budget"]
            axes.plot(done, bound, color=colour, linewidth=1.8, label=f"{knob}, queue")
        if (price := plan["price"].get(knob)) is not None:
            at_most = price * plan["iterations"] / done
            axes.plot(done, at_most, color=colour, linestyle="dotted", label=f"{knob}, log price")
    axes.axhline(0.01, color=BUDGET_COLOUR, linestyle="dashed", linewidth=1.2)
    axes.annotate(
        "1 %", (1.0, 0.01), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
        ha="right", fontsize=8, color=BUDGET_COLOUR,
    )  # fmt: skip
    axes.set_ylim(bottom=_LOW)
    axes.set_ylabel("average cost above the budget", fontsize=9, color=MUTED)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    _mark_end(axes, plan["iterations"])
    _finish(axes, "Above the budget at most: Theorem 2, log price", "iterations T")


def _draw_spending(axes: Axes, plan: Mapping[str, Any]) -> None:
    shares = {}
    for knob in KNOBS:
        found = plan["spending"][knob]
        if found["budget"] and found["each"] is not None:
            shares[knob] = found["each"] / found["budget"]
    for place, (knob, share) in enumerate(shares.items()):
        colour = line_style(KNOBS.index(knob)).colour
        axes.barh(place, share, color=colour, height=0.55)
        axes.annotate(
            f"{share:.0%}", (share, place), xytext=(-4, 0), textcoords="offset points", va="center",
            ha="right", fontsize=9, color="white", fontweight="bold",
        )  # fmt: skip
    axes.axvline(1.0, color=BUDGET_COLOUR, linestyle="dashed", linewidth=1.3)
    axes.set_yticks(range(len(shares)), list(shares))
    axes.invert_yaxis()
    axes.set_xlim(0, max([1.1, *(1.1 * share for share in shares.values())]))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _finish(axes, "forecast: share of the budget that is spent", "", legend=False)
    if not shares:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no budget", transform=axes.transAxes, ha="center", color=MUTED)


def _mark_end(axes: Axes, iterations: int) -> None:
    axes.axvline(iterations, color=MUTED, linewidth=0.8)
    axes.annotate(
        f"T = {iterations:,}", (iterations, 0.02), xycoords=("data", "axes fraction"), xytext=(3, 0),
        textcoords="offset points", fontsize=8, color=MUTED,
    )  # fmt: skip


def _finish(axes: Axes, title: str, x_label: str, *, legend: bool = True) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.set_xlabel(x_label, fontsize=9, color=MUTED)
    axes.tick_params(labelsize=8.5, color=GRID, labelcolor=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    if legend and axes.get_legend_handles_labels()[0]:
        # Below, where it covers no line.
        axes.legend(
            ncols=2,
            fontsize=8,
            frameon=False,
            labelcolor=INK,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.17),
        )
