"""tools/authors_numbers.py draws lots and costs as a plain loop over iterations and clients does."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.random import MT19937, RandomState, SeedSequence

from flexfl.spec.build import build_setup
from flexfl.spec.load import load_spec

T, N, D, K = 3, 100, 39760, 398


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    import authors_numbers

    monkeypatch.setattr(authors_numbers, "ITERATIONS", T)
    return authors_numbers


def cost_of_sending(t: int, n: int) -> float:
    snr = RandomState(MT19937(SeedSequence(800 * t + n + 23456))).chisquare(2)
    scale, fixed = (0.2, 0.01) if n == -1 else (1.0, 0.05)
    return fixed + scale * K / D / math.log2(1 + snr)


def test_the_baseline(tool: ModuleType) -> None:
    plain, computes, sends, broadcasts = RandomState(7), np.zeros((T, N)), np.zeros((T, N)), np.zeros(T)
    for t in range(T):
        for n in range(N):
            computes[t, n] = plain.binomial(1, 0.5)
            sends[t, n] = plain.binomial(1, min(1.0, 0.01 / cost_of_sending(t, n)))
        broadcasts[t] = plain.binomial(1, min(1.0, 0.01 / cost_of_sending(t, -1)))
    found = lots(tool, "kr-0.01")
    np.testing.assert_array_equal(found["compute/bernoulli"], 1 - computes)
    np.testing.assert_array_equal(found["uplink/send"], 1 - sends)
    np.testing.assert_array_equal(found["downlink/send"], 1 - broadcasts)
    assert 0 < sends.mean() < computes.mean() < 1


def test_the_proposed_method(tool: ModuleType) -> None:
    plain, computes, queue = RandomState(7), np.zeros((T, N)), np.ones(N)
    for t in range(T):
        for n in range(N):
            alpha = RandomState(MT19937(SeedSequence(1000 * t + n))).random_sample()
            q = min(1.0, math.sqrt(0.02 / (queue[n] * alpha))) if queue[n] * alpha > 0 else 1.0
            queue[n] = max(0.0, queue[n] + q * alpha - 0.25)
            computes[t, n] = plain.binomial(1, q)
    found = lots(tool, "online")
    assert set(found) == {"compute/bernoulli"}
    np.testing.assert_array_equal(found["compute/bernoulli"], 1 - computes)


def lots(tool: ModuleType, method: str) -> dict[str, np.ndarray]:
    spec = load_spec("fashion", tool.METHODS[method])
    streams = tool.Drawn(7, tool.costs_of(range(T)))
    return tool.decided(tool.Asked(build_setup(spec, streams=streams), D), RandomState(7))
