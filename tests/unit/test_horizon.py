"""Runs that plan for their end: a sweep neither cuts nor lengthens them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flexfl.control import Full
from flexfl.errors import RunDirectoryError
from flexfl.experiments.cell import Cell, run_cell
from flexfl.experiments.finished import finished_run, refuse_other_specs
from flexfl.results import Run
from flexfl.spec.build import plans_for_end
from flexfl.spec.schema import Spec, parse

TINY: dict[str, Any] = {"data": {"clients": 10}, "engine": {"threads": 1}}


@dataclass(frozen=True)
class Planning(Full):
    """A policy of one's own that looks at T."""

    uses_horizon: ClassVar[bool] = True


def cell(out: Path, policy: str, iterations: int) -> Cell:
    train = {"iterations": iterations, "evaluate_every": 2, "batch_size": 2}
    return Cell("one", parse(TINY | {"train": train, "control": {"policy": policy}}), out)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_policies", sys.modules[__name__])


def with_budget(**budget: Any) -> Spec:
    """A spec with these in its budget, checked or not: what is planned for is read from what it says."""
    spec = parse(TINY)
    return spec.model_copy(update={"budget": spec.budget.model_copy(update=budget)})


def run(one: Cell) -> dict[str, Any]:
    return run_cell(one, share=1, resume=True, report=lambda **changes: None)


def test_a_run_that_planned_for_its_end_is_another_run_than_a_shorter_or_a_longer_one(tmp_path: Path) -> None:
    assert run(cell(tmp_path, "my_policies:Planning", 4))["state"] == "done"
    found = finished_run(cell(tmp_path, "my_policies:Planning", 4))
    assert found is not None
    for other in (2, 6):
        wanted = cell(tmp_path, "my_policies:Planning", other)
        assert finished_run(wanted) is None
        with pytest.raises(RunDirectoryError, match=f"train.iterations is 4 there, got {other}, and what"):
            refuse_other_specs([wanted])
        outcome = run(wanted)
        assert outcome["state"] == "failed"
        assert f"train.iterations is 4 there, got {other}" in outcome["error"]
    assert len(Run(tmp_path).iterations["iteration"]) == 4


def test_a_run_that_did_not_is_cut_and_lengthened(tmp_path: Path) -> None:
    assert run(cell(tmp_path, "full", 4))["state"] == "done"
    shorter = finished_run(cell(tmp_path, "full", 2))
    assert shorter is not None
    assert shorter.summary is not None
    assert shorter.summary["iterations"] == 2
    refuse_other_specs([cell(tmp_path, "full", 6)])
    assert run(cell(tmp_path, "full", 6))["iteration"] == 6


@pytest.mark.parametrize(
    ("control", "plans"),
    [
        ({"policy": "online"}, False),
        ({"policy": "my_policies:Planning"}, True),
        ({"policy": "online", "uplink": {"policy": "my_policies:Planning"}}, True),
        ({"policy": "given:Planning"}, False),  # an object, which a sweep never has
    ],
)
def test_a_policy_says_whether_it_plans(control: dict[str, Any], plans: bool) -> None:
    assert plans_for_end(parse(TINY | {"control": control})) is plans


@pytest.mark.parametrize(
    ("uplink", "total"),
    [
        (0.1, False),
        ("20 MB", True),
        ("20 MB / month", False),
        ("2 kB / iteration", False),
        (["1 MB / day", "3 MB"], True),
        ({"shared": [{"clients": "0-3", "limit": "3 EUR"}]}, True),
        ({"shared": [{"clients": "0-3", "limit": "3 EUR / day"}], "others": 1.0}, False),
    ],
)
def test_a_budget_for_the_whole_run_depends_on_its_length(uplink: Any, total: bool) -> None:
    assert plans_for_end(with_budget(uplink=uplink)) is total


def test_a_hard_budget_depends_on_the_length_of_a_run() -> None:
    assert plans_for_end(with_budget(uplink=0.1, hard=True))
    assert not plans_for_end(with_budget(uplink=0.1, hard=False))


@pytest.mark.parametrize(
    ("schedule", "plans"),
    [("constant", False), ("wsd", True), ({"kind": "step"}, True), ("my_schedules:Own", True)],
)
def test_a_schedule_depends_on_the_length_of_a_run(schedule: Any, plans: bool) -> None:
    control = {"control": {"policy": "online"}}
    assert plans_for_end(parse(TINY | control | {"train": {"schedule": schedule}})) is plans


def test_a_policy_that_cannot_be_imported_is_told_by_its_own_run(tmp_path: Path) -> None:
    assert run(cell(tmp_path, "my_policies:Planning", 4))["state"] == "done"
    missing = cell(tmp_path, "my_policies:Missing", 2)
    assert finished_run(missing) is None
    assert "control.policy" in run(missing)["error"]
