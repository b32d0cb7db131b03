"""Write the tables and the figure of docs/evidence.md on frugal runs, from those of `make evidence-frugal`.

    python -m tools.evidence_frugal.tables runs/evidence-frugal --out results/frugal

- fashion: final accuracy of x and of the averaged model, spent/budget and bytes over seeds, by budget, beside
  the paper's method with whole budgets (results/fashion)
- cifar: the same, beside results/cifar10
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tools.written_table import write

from flexfl.parameters import KNOBS
from flexfl.results import Run

FASHION = ("half", "quarter", "whole", "whole-paper-s-counting")
LABELS = {
    "half": "half of both budgets, every bit counted",
    "quarter": "a quarter, every bit counted",
    "whole": "whole budgets, every bit counted",
    "whole-paper-s-counting": "whole budgets, the paper's counting (top-k, price, schedule)",
}
COLOURS = {"half": "#0072b2", "quarter": "#56b4e9", "whole": "#009e73", "whole-paper-s-counting": "#e69f00"}


def runs(folder: Path) -> list[Run]:
    """Return the finished runs of a setting, by seed."""
    found = [Run(path) for path in sorted(folder.glob("seed-*"), key=lambda path: int(path.name[5:]))]
    if not found or any(run.summary is None for run in found):
        raise SystemExit(f"{folder} is not finished; finish the sweep first")
    return found


def spread(values: Any, digits: int = 4) -> str:
    array = np.asarray(values, dtype=float)
    deviation = array.std(ddof=1) if len(array) > 1 else 0.0
    return f"{array.mean():.{digits}f} ± {deviation:.{digits}f}"


def row_of(name: str, found: list[Run]) -> list[str]:
    """Return a row of the table: accuracies, spending, the worst client, megabytes."""
    summaries = [run.summary or {} for run in found]
    accounts = [[summary["average_cost"][knob] for knob in KNOBS] for summary in summaries]
    shares = np.array([[entry["spent"] / entry["budget"] for entry in row] for row in accounts])
    worst = max(
        entry["worst"]["spent"]["spent"] / entry["worst"]["spent"]["budget"] if entry["worst"] else share
        for row, listed in zip(accounts, shares, strict=True)
        for entry, share in zip(row, listed, strict=True)
    )
    megabytes = [
        np.mean([summary[name] for summary in summaries]) / 1e6 for name in ("uplink_bytes", "downlink_bytes")
    ]
    return [
        LABELS.get(name, name),
        str(len(found)),
        spread([summary["test_accuracy"] for summary in summaries]),
        spread([summary["average_test_accuracy"] for summary in summaries]),
        *(f"{100 * a:.2f}–{100 * b:.2f} %" for a, b in zip(shares.min(0), shares.max(0), strict=True)),
        f"{100 * worst:.2f} %",
        " / ".join(f"{value:.1f}" for value in megabytes),
    ]


HEADER = [
    "setting",
    "seeds",
    "final accuracy",
    "of the averaged model",
    *(f"{knob} spent, least–most of the seeds" for knob in KNOBS),
    "worst client of all seeds",
    "MB up (all clients) / down",
]


def paper_curve(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return iterations and mean test accuracy of the paper's method from the committed curves."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "Proposed"]
    return np.array([int(row["iteration"]) for row in rows]), np.array(
        [float(row["test_accuracy"]) for row in rows]
    )


def figure(settings: dict[str, list[Run]], paper: Path, out: Path, title: str) -> None:
    """Draw test accuracy over iterations, mean and band of the seeds, beside the paper's method."""
    drawn, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    most = 0
    for name, found in settings.items():
        at = np.asarray(found[0].evaluations["iteration"])
        accuracy = np.array([run.evaluations["test_accuracy"] for run in found], dtype=float)
        mean, deviation = accuracy.mean(0), accuracy.std(0, ddof=1) if len(found) > 1 else 0 * accuracy[0]
        colour = COLOURS.get(name, "#0072b2")
        axes.plot(at, mean, color=colour, label=LABELS.get(name, name))
        axes.fill_between(at, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
        most = max(most, int(at[-1]))
    at, mean = paper_curve(paper)
    axes.plot(
        at[at <= most],
        mean[at <= most],
        color="0.35",
        linestyle="--",
        label="the paper's method, whole budgets, its counting",
    )
    top = float(np.nanmax(mean))
    axes.set(xlabel="iteration t", ylabel="test accuracy", title=title, xlim=(0, most))
    axes.set_ylim(max(0.0, top - 0.2), None)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    for ending in ("png", "svg"):
        drawn.savefig(out.with_suffix(f".{ending}"), dpi=150)
    plt.close(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/frugal"))
    given = parser.parse_args()
    fashion = {name: runs(given.runs / "fashion" / name) for name in FASHION}
    write(given.out / "fashion", HEADER, [row_of(name, found) for name, found in fashion.items()])
    figure(
        fashion,
        Path("results/fashion/fig1-curves.csv"),
        given.out / "fashion",
        "Fashion-MNIST, N = 100, one class each",
    )
    cifar = {"half": runs(given.runs / "cifar" / "half")}
    write(given.out / "cifar10", HEADER, [row_of(name, found) for name, found in cifar.items()])
    figure(
        cifar,
        Path("results/cifar10/fig1-curves.csv"),
        given.out / "cifar10",
        "CIFAR-10, N = 100, one class each",
    )


if __name__ == "__main__":
    main()
