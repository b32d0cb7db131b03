"""One spec in four scales: under the price, costs and budgets × 1e-3, 1, 1e3 and in bytes decide the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from small import small_engine, small_spec

ITERATIONS = 60
SCALES = {"thousandths": (1e-3, ""), "thousands": (1e3, ""), "bytes": (4096.0, "byte")}


def scaled(scale: float, unit: str) -> Any:
    """The paper's costs and budgets, so many times; with a unit, budgets are texts in it."""

    def budget(limit: float) -> float | str:
        return f"{limit * scale!r} B / iteration" if unit else limit * scale

    costs = {
        "compute": {"kind": "uniform", "high": scale},
        "uplink": {"kind": "fading", "factor": scale, "unit": unit},
        "downlink": {"kind": "fading", "factor": 0.2 * scale, "unit": unit},
    }
    limits = {"compute": 0.25 * scale, "uplink": budget(0.05), "downlink": budget(0.02)}
    return small_spec({"policy": "price"}, costs, limits)


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    engine = small_engine(scaled(1.0, ""), "equal")
    return [engine.step() for _ in range(ITERATIONS)]


@pytest.mark.parametrize(("scale", "unit"), SCALES.values(), ids=SCALES)
def test_decisions_are_the_same_to_rounding(expected, scale, unit):
    engine = small_engine(scaled(scale, unit), "equal")
    for before in expected:
        record = engine.step()
        for name in ("computed", "uplink_components", "downlink_components"):
            np.testing.assert_array_equal(record[name], before[name], err_msg=name)
        np.testing.assert_allclose(record["compute_prob"], before["compute_prob"], rtol=1e-9)
        for name in ("compute_spent", "uplink_cost", "downlink_cost"):
            np.testing.assert_allclose(record[name], scale * np.asarray(before[name]), rtol=1e-9, atol=0)
        for name in ("uplink_objective", "downlink_objective"):
            np.testing.assert_allclose(record[name], before[name], rtol=1e-9, atol=1e-12)


def test_there_is_something_to_decide(expected):
    sent = np.array([record["uplink_components"] for record in expected])
    assert 0 < np.count_nonzero(sent) < sent.size
    assert any(0 < record["computed"].sum() < len(record["computed"]) for record in expected)
