"""The figures of Section V of the paper, as methods × seeds.

Figures 1 to 3 share cells: the proposed method with V = 0.02 and W = 1 is in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flexfl.errors import Fault, InputError
from flexfl.experiments.cell import Cell
from flexfl.experiments.finished import finished_run
from flexfl.report.evidence import Evidence
from flexfl.report.evidence import Method as MethodRuns
from flexfl.results import Run
from flexfl.spec.load import load_spec


@dataclass(frozen=True)
class Method:
    """One curve: `key` names its folder, `label` is the paper's name for it."""

    key: str
    label: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One figure; `key` names its files."""

    key: str
    title: str
    methods: tuple[Method, ...]


@dataclass(frozen=True)
class Setup:
    """A dataset as the paper uses it; for each accuracy in `targets` the table has the first iteration."""

    spec: str
    title: str
    seeds: int
    targets: tuple[float, ...]


SETUPS = {
    "fashion": Setup("fashion", "Fashion-MNIST", 20, (0.80, 0.85)),
    "cifar10": Setup("cifar10", "CIFAR-10", 5, (0.40, 0.50)),
    "mini": Setup("quickstart", "fashion-mini", 3, (0.70, 0.75)),
}
"""`mini` needs no download: for trying the command; not an experiment of the paper."""


def _baseline(ratio: str) -> Method:
    return Method(
        f"kr-{ratio}",
        f"Baseline, kᵣ = {ratio}",
        ("control.policy=randomised", f"control.send_ratio={ratio}"),
    )


_POLICY = "control.policy=online"
"""The paper's; a method may set another, and quickstart has the price."""
_PROPOSED = Method("online", "Proposed")

FIGURES = {
    figure.key: figure
    for figure in (
        Figure(
            "fig1",
            "Figure 1: the proposed method against the baseline",
            (_PROPOSED, *(_baseline(ratio) for ratio in ("0.001", "0.01", "0.1", "1.0"))),
        ),
        Figure(
            "fig2",
            "Figure 2: the proposed method with W = 1 and different V",
            (
                Method("V-0.002", "V = 0.002", ("control.tradeoff=0.002",)),
                Method("online", "V = 0.02"),
                Method("V-0.2", "V = 0.2", ("control.tradeoff=0.2",)),
            ),
        ),
        Figure(
            "fig3",
            "Figure 3: the proposed method with V = 0.02 and different W",
            (
                Method("W-0.1", "W = 0.1", ("control.initial_queue=0.1",)),
                Method("online", "W = 1"),
                Method("W-10.0", "W = 10", ("control.initial_queue=10.0",)),
            ),
        ),
    )
}


def cells_of(
    figures: Sequence[Figure],
    setup: Setup,
    out: Path,
    *,
    seeds: int,
    iterations: int | None = None,
    evaluate_every: int | None = None,
) -> list[Cell]:
    """Return the cells of some figures, each once, seed by seed.

    Args:
        figures: The figures.
        setup: The dataset.
        out: The folder of the runs.
        seeds: How many seeds, from 1.
        iterations: Number of iterations; by default the paper's.
        evaluate_every: Iterations between evaluations; by default the paper's.
    """
    methods = {method.key: method for figure in figures for method in figure.methods}
    settings = {"train.iterations": iterations, "train.evaluate_every": evaluate_every}
    overrides = [f"{name}={value}" for name, value in settings.items() if value is not None]
    return [
        Cell(
            f"{method.key}, seed {seed}",
            load_spec(setup.spec, [_POLICY, *method.settings, *overrides, f"train.seed={seed}"]),
            out / method.key / f"seed-{seed}",
        )
        for seed in range(1, seeds + 1)
        for method in methods.values()
    ]


def evidence_of(figure: Figure, setup: Setup, cells: Sequence[Cell]) -> Evidence:
    """Return the data of a figure, from those of `cells` that are finished.

    Raises:
        InputError: A method of the figure has no finished run.
    """
    runs: dict[str, list[Run]] = {method.key: [] for method in figure.methods}
    for cell in cells:
        members = runs.get(cell.out.parent.name)
        if members is not None and (run := finished_run(cell)) is not None:
            members.append(run)
    if missing := [key for key, members in runs.items() if not members]:
        rule = "needs at least one finished run of each method"
        remedy = f"none of {', '.join(missing)}; run flexfl paper {figure.key} again"
        raise InputError([Fault(figure.key, rule, sum(map(len, runs.values())), remedy)], "the runs")
    methods = [MethodRuns(method.label, tuple(runs[method.key])) for method in figure.methods]
    return Evidence(figure.key, f"{figure.title} ({setup.title})", tuple(methods), setup.targets)
