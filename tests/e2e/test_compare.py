"""A comparison from the command line: tuned, run over seeds, and resumed without computing anything twice."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from stopping import FLEXFL

pytestmark = pytest.mark.xdist_group("run_many")  # they start processes of their own

SMALL = ["--set", "data.clients=10", "--set", "train.iterations=6", "--set", "train.evaluate_every=3"]
METHOD = """
paper = "Nobody, 2020"
[control]
policy = "top-k"
send_ratio = 0.1
[tune]
train.learning_rate = [0.1, 1e30]
"""


def flexfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLEXFL, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.sqlite")}


@pytest.mark.slow
def test_a_comparison_is_tuned_run_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(METHOD)
    (tmp_path / "steady.toml").write_text('[control]\npolicy = "price"\n')  # nothing to tune
    targets = ["--target", "0.05", "--target", "0.99"]
    command = ["compare", "steady.toml", "mine.toml", *SMALL, *targets, "--jobs", "2"]
    first = flexfl(*command, "--seeds", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr  # a combination that fails is not chosen, and that is all
    assert "mine, learning_rate=1e+30, seed 1 failed" in first.stderr
    assert "2 of 2 runs are finished already" not in first.stdout
    assert "mine: learning_rate=0.1, best of 2" in first.stdout
    before = stamps(tmp_path / "runs/compare/quickstart")
    done = [path for path in before if "1e+30" not in str(path)]
    second = flexfl(*command, "--seeds", "1-2", "--json", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    after = stamps(tmp_path / "runs/compare/quickstart")
    assert len(done) == 2
    assert all(before[path] == after[path] for path in done)
    results = json.loads(second.stdout)
    assert [(row["method"], row["seeds"]) for row in results["methods"]] == [("steady", 2), ("mine", 2)]
    assert results["methods"][1]["seeds_that_reach_0.05"] == 2
    out = tmp_path / "runs/compare/quickstart/compare"
    assert results == json.loads((out / "compare.json").read_text())
    assert "never" in (out / "compare.md").read_text()
    with (out / "compare.csv").open() as file:
        assert [row["settings"] for row in csv.DictReader(file)] == ["", "learning_rate=0.1"]
    assert (out / "compare.png").exists()
    assert (out / "compare.svg").exists()


def test_unequal_budgets_are_one_error_and_no_work(tmp_path: Path) -> None:
    (tmp_path / "rich.toml").write_text("[budget]\nuplink = 1.0\n")
    done = flexfl("compare", "price", "rich.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "flexfl: 1 fault in the methods:",
        "  rich: budget.uplink must be the base's, 0.01: methods are compared on equal terms, got 1.0; "
        "leave it out, or set it for all with --set",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["rich.toml"]
