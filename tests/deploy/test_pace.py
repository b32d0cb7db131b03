"""Iterations follow each other no faster than what each takes anyway allows."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flexfl.costs import ConstantMessage, MeasuredMessage
from flexfl.deploy.pace import MARGIN, Pace, pace_of

NAMES = ["north", "south"]


def record(north: float, south: float, down: float) -> dict[str, Any]:
    costs = {"north": north, "south": south}
    answers = {name: {"uplink_cost": cost + 1000.0, "uplink_bytes": 1000.0} for name, cost in costs.items()}
    return {"answers": answers, "downlink_cost": down + 50.0, "downlink_bytes": 50.0}


def test_the_slowest_link_sets_the_pace() -> None:
    pace = Pace({"north": 100.0, "south": 10.0}, 1000.0)
    assert pace.seconds == pytest.approx(MARGIN * 300 / 10)
    for _ in range(200):
        pace.add(record(200.0, 120.0, 500.0))
    assert pace.seconds == pytest.approx(MARGIN * 120 / 10, rel=1e-3)
    pace.downlink = 20.0
    assert pace.seconds == pytest.approx(MARGIN * 500 / 20, rel=1e-3)
    assert Pace().seconds == 0.0


def test_messages_have_what_iterations_leave() -> None:
    """At that pace, what iterations take anyway is 1/MARGIN of the budget."""
    pace = Pace({"north": 40.0})
    for _ in range(200):
        pace.add(record(250.0, 0.0, 0.0))
    assert 250.0 / pace.seconds == pytest.approx(40.0 / MARGIN, rel=1e-3)


def test_an_answer_that_took_very_much_hardly_slows_the_run() -> None:
    pace = Pace({"north": 10.0})
    before = pace.seconds
    pace.add(record(1e9, 0.0, 0.0))
    assert pace.seconds <= 1.3 * before + 1e-9


def test_a_wait_ends_when_the_run_is_stopped() -> None:
    pace = Pace({"north": 1e-6})
    pace.wait(lambda: False)  # the first iteration begins at once
    looked: list[float] = []

    def stopped() -> bool:
        looked.append(time.monotonic())
        return len(looked) > 2

    pace.wait(stopped)
    assert len(looked) == 3


def budget(limits: Any, per: str = "time", members: Any = None) -> Any:
    return SimpleNamespace(limits=limits, per=per, seconds=60.0, members=members)


def test_only_bytes_on_the_link_for_a_time_set_a_pace() -> None:
    costs = {"uplink": MeasuredMessage(), "downlink": MeasuredMessage()}
    both = {"uplink": budget([600.0, np.inf]), "downlink": budget(1200.0)}
    pace = pace_of(both, costs, NAMES)
    assert pace.uplink == {"north": 10.0}
    assert pace.downlink == 20.0
    shared = {"uplink": budget([600.0], members=np.array([0, 0]))}
    assert pace_of(shared, costs, NAMES).uplink == {"north": 5.0, "south": 5.0}
    for budgets, other in (
        ({"uplink": budget(600.0, "run"), "downlink": None}, costs),
        (both, {"uplink": ConstantMessage(), "downlink": MeasuredMessage(count="payload")}),
        ({}, costs),
    ):
        assert pace_of(budgets, other, NAMES).seconds == 0.0
