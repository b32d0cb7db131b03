"""The terminal output of a running run."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from flexfl.cli.show import ProgressLine, show_outcomes
from flexfl.experiments import Cell, Outcome
from flexfl.results import Run
from flexfl.results.observer import Live
from flexfl.spec import load_spec
from runs import write_run


def live(iteration: int, total: int = 100) -> Live:
    budgets = {"compute": 0.5, "uplink": None, "downlink": 0.1}
    costs = {"compute": 0.25, "uplink": 3.0, "downlink": 0.2}
    return Live(total, iteration, {"train_loss": 0.5, "test_accuracy": 0.75}, budgets, costs, 61.0, {})


def shown(iterations: list[int], total: int = 100, **how: Any) -> str:
    out = io.StringIO()
    with ProgressLine(Console(file=out, width=120, **how), total) as line:
        for iteration in iterations:
            line.update(live(iteration, total))
    return out.getvalue()


def test_a_log_has_some_twenty_lines_whatever_the_length() -> None:
    for total in (1, 7, 100, 12345):
        assert 1 <= len(shown(list(range(1, total + 1)), total).splitlines()) <= 39


def test_a_log_has_a_line_for_every_look_that_shows_progress() -> None:
    """Seen from another process, iterations come in jumps."""
    lines = shown([1, 3, 7, 7, 8, 31, 33, 99, 100]).splitlines()
    assert [line.split()[1] for line in lines] == ["7/100", "31/100", "99/100", "100/100"]
    assert lines[0] == (
        "iteration 7/100  loss 0.500  accuracy 0.750  compute 0.25/0.5  uplink 3  downlink 0.2/0.1  "
    )


def test_a_terminal_shows_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1, 100))
    monkeypatch.setattr("flexfl.cli.show.time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    output = shown([1, 50], force_terminal=True)
    assert "50/100" in output
    assert "1:01 left" in output
    assert "accuracy 0.750" in output


def test_the_table_of_many_runs_names_the_worst_client_of_all(tmp_path: Path) -> None:
    cells = [Cell(f"mini, seed {seed}", load_spec("quickstart"), tmp_path / str(seed)) for seed in (1, 2)]
    outcomes = [Outcome(cell, "failed") for cell in cells]
    for number, cell in enumerate(cells, start=1):
        charged = None if number == 1 else 0.1
        run = write_run(cell.out, seed=number, cost=number / 10, charged=charged, budget={"uplink": 0.3})
        summary = Run(run).summary
        outcomes[number - 1] = Outcome(cell, "done", 20, 0.5, summary)
    out = io.StringIO()
    show_outcomes(Console(file=out, width=80), outcomes)
    lines = out.getvalue().splitlines()
    assert "worst client: client 3 of mini, seed 2 has spent 200% of its uplink budget" in lines
    expected = "charged 0.15 on average, the expected cost, which is what is controlled"
    assert f"compute in 1 of 2 runs: {expected}" in lines
    assert max(len(line) for line in lines if "│" in line) <= 80
