"""Channels with a memory have the law that their docstrings state: mean, variance, autocorrelation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexfl.costs import ConstantMessage, FadingChannel, GaussMarkov, GilbertElliott
from flexfl.streams import Entities, Streams

MANY, DIM = 40_000, 10


def moment(t, clients=MANY, seed=5):
    return Streams(seed).moment("uplink", t, DIM, Entities.all_clients(clients))


def snr(cost):
    """Return |h|² of each client, from γ = 1 / (d·log2(1 + |h|²))."""
    return np.exp2(1.0 / (DIM * cost.per_component)) - 1.0


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_gauss_markov_is_stationary_and_as_correlated_as_said(rho):
    channel = GaussMarkov(correlation=rho)
    series = np.array([snr(channel.at(moment(t))) for t in range(6)])
    # χ²₂: mean 2, variance 4, median 2·ln 2. Of 40,000 draws, the mean is known to 0.01.
    assert series.mean(axis=1) == pytest.approx(np.full(6, 2.0), abs=0.05)
    assert series.var(axis=1) == pytest.approx(np.full(6, 4.0), abs=0.3)
    assert np.median(series, axis=1) == pytest.approx(np.full(6, 2 * np.log(2)), abs=0.05)
    for lag in range(1, 6):
        assert np.corrcoef(series[0], series[lag])[0, 1] == pytest.approx(rho ** (2 * lag), abs=0.025)


def test_without_correlation_it_is_fading():
    channel, fading = GaussMarkov(correlation=0.0, factor=0.2), FadingChannel(factor=0.2)
    for t in range(4):
        mine, theirs = channel.at(moment(t, 50)), fading.at(moment(t, 50))
        np.testing.assert_allclose(mine.per_component, theirs.per_component, rtol=1e-9)
        np.testing.assert_allclose(mine.per_message, theirs.per_message)


def test_a_time_constant_is_a_correlation():
    slow, same = GaussMarkov(time_constant=8.0), GaussMarkov(correlation=float(np.exp(-1 / 8)))
    for t in range(5):
        found = slow.at(moment(t, 9)).per_component
        np.testing.assert_allclose(found, same.at(moment(t, 9)).per_component, rtol=1e-12)


@pytest.mark.parametrize(("p", "r"), [(0.05, 0.2), (0.5, 0.5), (0.3, 0.9), (1.0, 0.4)])
def test_gilbert_elliott_is_stationary_and_as_correlated_as_said(p, r):
    link = GilbertElliott(to_bad=p, to_good=r, worse=3.0, cost=ConstantMessage(1.0, 0.0))
    series = np.array([link.at(moment(t))(1) for t in range(6)])
    assert set(np.unique(series)) == {1.0, 3.0}
    bad = (series == 3.0).astype(float)
    assert bad.mean(axis=1) == pytest.approx(np.full(6, p / (p + r)), abs=0.015)
    for lag in range(1, 6):
        assert np.corrcoef(bad[0], bad[lag])[0, 1] == pytest.approx((1 - p - r) ** lag, abs=0.025)


@pytest.mark.parametrize("kind", [GaussMarkov, GilbertElliott])
@settings(max_examples=20)
@given(missed=st.sets(st.integers(0, 14)), seed=st.integers(0, 99), client=st.integers(0, 6))
def test_a_client_that_missed_iterations_catches_up(kind, missed, seed, client):
    whole, alone = kind(), kind()
    for t in range(16):
        among_all = whole.at(moment(t, 7, seed))
        if t not in missed:
            found = alone.at(moment(t, 7, seed).of(client))
            expected = np.broadcast_to(among_all.per_component, 7)[client]
            np.testing.assert_allclose(found.per_component, expected, rtol=1e-12)
    state = alone.state()
    restored = kind()
    restored.restore(state)
    later = moment(40, 7, seed).of(client)
    assert restored.at(later)(5) == alone.at(later)(5)


def test_an_outage_is_infinite_for_those_whose_link_is_bad_only():
    down = GilbertElliott(worse=np.inf, to_bad=0.4, to_good=0.4)
    worse = GilbertElliott(worse=2.0, to_bad=0.4, to_good=0.4)
    for t in range(5):
        cost, other = down.at(moment(t, 200)), worse.at(moment(t, 200))
        bad = other(1) > 1.5 * other(1).min()
        assert 40 < bad.sum() < 160
        assert np.array_equal(np.isinf(cost(1)), bad)
        assert np.array_equal(cost(0), np.zeros(200))
        assert np.array_equal(cost.away, bad)


def test_a_channel_by_client():
    channel = GilbertElliott(to_bad=[1.0, 1e-9], to_good=[1e-9, 1.0], worse=[7.0, 7.0])
    costs = np.array([channel.at(moment(t, 2))(DIM) for t in range(20)])
    np.testing.assert_allclose(costs, [[7.0, 1.0]] * 20, rtol=1e-12)
