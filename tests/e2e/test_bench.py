"""flexfl bench tells what it promises; its figures are not judged here."""

from __future__ import annotations

import pytest

from flexfl.experiments import bench


@pytest.mark.parametrize("shape", ["fashion", pytest.param("cifar", marks=pytest.mark.slow)])
def test_bench_measures_every_figure(monkeypatch, shape):
    monkeypatch.setattr(bench, "WARM_UP", 2)
    found = bench.bench(shape, clients=10, iterations=3)
    assert found["gradients"] == "one pass (chain)"
    assert found["parameters"] == {"fashion": 39_760, "cifar": 551_786}[shape]
    assert 0 < found["ratio_limit"] < 100
    assert 0 < found["ratio_limit_apart"] < 100
    assert found["ratio_oracle"] == pytest.approx(found["oracle_ms"] / found["ms"])
    assert 0 < sum(found["stages_ms"].values()) < 2 * found["ms"]
    assert found["limit_ms"] > 0


def test_scaling_goes_over_the_sizes(monkeypatch):
    monkeypatch.setattr(bench, "WARM_UP", 2)
    rows = bench.scaling("fashion", [10, 20], seconds=0.01)
    assert [row["clients"] for row in rows] == [10, 20]
    assert rows[0]["ratio_per_client"] == 1
    assert all(row["ms_per_client"] == pytest.approx(row["ms"] / row["clients"]) for row in rows)
