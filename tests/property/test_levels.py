"""Quantised top-k: the search against every k and L, what is sent, and the engine's passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from flexfl import wire
from flexfl.compress import Levels, PlainVectors
from flexfl.compress.levels import bins_of
from flexfl.compress.plain import SPARED
from flexfl.control import search
from flexfl.control.price import best_ratio
from flexfl.costs import Affine, Staircase
from flexfl.counting import Counts, size_in
from flexfl.sim.level_residuals import LevelResiduals
from flexfl.sim.plain_residuals import PlainResiduals, residuals_for
from flexfl.streams import Entities, Streams

KINDS = ("normal", "heavy tails", "ties", "many scales", "few components", "one magnitude")
COUNTS: tuple[Counts, ...] = ("components", "bits", "bytes")
MOST_BITS = (None, None, 1, 3, 5)


def drawn(kind: str, shape: Any, rng: np.random.Generator, dtype: Any = np.float64) -> np.ndarray:
    """Return vectors of one kind, with the smallest numbers that there are among those of many scales."""
    b = rng.normal(size=shape)
    if kind == "heavy tails":
        b = rng.standard_t(1.5, size=shape)
    elif kind == "ties":
        b = rng.integers(-3, 4, shape) / 2
    elif kind == "many scales":
        b = b * 10.0 ** rng.uniform(-14, 3, shape)
        b[rng.random(shape) < 0.1] = np.finfo(dtype).smallest_subnormal * 3
    elif kind == "few components":
        b = b * (rng.random(shape) < 0.1)
    elif kind == "one magnitude":
        b = np.sign(b) * 0.3
    return b.astype(dtype)


def some_cost(stairs: bool, dim: int, counts: Counts, rng: np.random.Generator) -> Affine | Staircase:
    """Return a cost, with steps or not, in which a message of one component or of all may be dear."""
    full = float(size_in(counts, dim, 4 * dim + 20))
    if stairs:
        return Staircase(np.asarray(1.0), np.asarray(full * 10 ** rng.uniform(-3, 0.3)))
    return Affine(np.asarray(0.02 * full * 10 ** rng.uniform(-2, 2)), np.asarray(1.0))


def some_price(energy: Any, cost: Any, dim: int, counts: Counts, rng: np.random.Generator) -> Any:
    """Return Φ of each vector: from where all is sent to where nothing is."""
    full = float(size_in(counts, dim, 4 * dim + 20))
    return energy / float(cost(full)) * 10 ** rng.uniform(-2, 1.5, np.shape(energy))


def moment(rows: int | None, dim: int) -> Any:
    who = Entities.the_server() if rows is None else Entities.all_clients(rows)
    return Streams(1).moment("uplink", 0, dim, who)


def plain(b: np.ndarray, compressor: Levels, counts: Counts) -> PlainVectors:
    return PlainVectors(b, compressor, moment(len(b) if b.ndim > 1 else None, b.shape[-1]), counts)


# The search ------------------------------------------------------------------------------------


def lost(b: np.ndarray, compressor: Levels, Phi: float, cost: Any, counts: Counts) -> tuple[float, float]:
    """Return by how much the amount found is worse than the best of all, and what that is to be held against.

    That is what the best message improves the objective by, and what it takes off ‖b‖². Of all k in the bins
    beside the best edge of a bin, with the L that is best there, none is better.
    """
    found = int(search.amounts(1.0, Phi, cost, plain(b, compressor, counts)))
    offers, number = compressor.offers(b, np.random.default_rng), len(compressor.choices)
    value = Phi * cost(offers.sizes(counts)) + offers.kept
    best, rounding = int(np.argmin(value)), 1e-12 * value[0]
    by_k = value[1:].reshape(-1, number)
    u = np.sort(bins_of(b))[::-1][: len(by_k)]
    edges = np.flatnonzero(np.append(u[1:] != u[:-1], True))
    if len(u):
        place, choice = divmod(int(np.argmin(by_k[edges])), number)
        beside = slice(edges[place - 1] + 1 if place else 0, edges[min(place + 1, len(edges) - 1)] + 1)
        worth_it = by_k[edges].min() < value[0] - rounding
        assert not worth_it or value[found] <= by_k[beside, choice].min() + rounding
    assert value[found] <= value[0]
    return value[found] - value[best], value[0] - value[best] + offers.kept[0] - offers.kept[best]


@pytest.mark.parametrize("stairs", [False, True], ids=["affine", "stairs"])
@pytest.mark.parametrize("counts", COUNTS)
def test_of_few_components_nothing_beats_what_the_search_finds(stairs, counts):
    """Every k with every L: exact, for any cost."""
    rng = np.random.default_rng(len(counts))
    for case in range(240):
        dim = int(np.exp(rng.uniform(0, 6)))
        b = drawn(KINDS[case % len(KINDS)], dim, rng, (np.float32, np.float64)[case % 2])
        energy = float(np.square(b, dtype=np.float64).sum())
        cost = some_cost(stairs, dim, counts, rng)
        Phi = some_price(energy, cost, dim, counts, rng)
        worse, _ = lost(b, Levels(MOST_BITS[case % len(MOST_BITS)]), Phi, cost, counts)
        assert worse <= 1e-12 * energy


@pytest.mark.parametrize("stairs", [False, True], ids=["affine", "stairs"])
@pytest.mark.parametrize("counts", COUNTS)
def test_of_many_components_hardly_anything_does(stairs, counts):
    """Bins of magnitude instead of every k; a step of a cost may lie in a bin that is not looked into."""
    rng = np.random.default_rng(len(counts))
    for case in range(20):
        dim = int(np.exp(rng.uniform(6.5, 8.5)))
        b = drawn(KINDS[case % 4], dim, rng, (np.float32, np.float64)[case % 2])
        energy = float(np.square(b, dtype=np.float64).sum())
        cost = some_cost(stairs, dim, counts, rng)
        Phi = some_price(energy, cost, dim, counts, rng)
        worse, against = lost(b, Levels(MOST_BITS[case % len(MOST_BITS)]), Phi, cost, counts)
        assert worse <= max(1e-3 * against, 1e-12 * energy)


def test_a_sign_for_every_component_is_found():
    """A message of all components is shorter than one of most: places take nothing."""
    b = np.where(np.random.default_rng(1).random((1, 400)) < 0.5, -1.0, 1.0)
    sizes = Levels().offers(b[0], np.random.default_rng).nbytes
    everything = sizes[(400 - 1) * 5 + 1]
    assert everything < sizes[360 * 5 + 1]
    cost = Affine(np.asarray(0.0), np.asarray(1.0))
    for make in (plain, lambda b, compressor, counts: residuals_for(compressor, b, counts=counts)):
        amounts = search.amounts(1.0, 400 / (1.1 * everything), cost, make(b.copy(), Levels(), "bytes"))
        assert amounts.tolist() == [(400 - 1) * 5 + 1]


@pytest.mark.parametrize("stairs", [False, True], ids=["affine", "stairs"])
def test_the_best_ratio_is_that_of_all_messages(stairs):
    rng = np.random.default_rng(3)
    for case in range(60):
        counts, kind = COUNTS[case % 3], KINDS[case % len(KINDS)]
        b = drawn(kind, (3, int(np.exp(rng.uniform(0, 5)))), rng)
        b[0] = 0
        cost = some_cost(stairs, b.shape[1], counts, rng)
        for make in (plain(b, Levels(), counts), residuals_for(Levels(), b.copy(), counts=counts)):
            ratio, spent = best_ratio(cost, make, np.array([True, True, False]))
            assert ratio[0] == spent[0] == ratio[2] == 0
            offers = Levels().offers(b[1], np.random.default_rng)
            prices = cost(offers.sizes(counts))
            ratios = (offers.kept[0] - offers.kept[1:]) / prices[1:]
            if not len(ratios):
                continue
            assert ratio[1] == pytest.approx(ratios.max(), rel=1e-9)
            reached = np.isclose(prices[1:], spent[1]) & np.isclose(ratios, ratio[1])
            assert reached.any()


# What is sent ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_messages_are_what_was_offered_and_arrive_as_they_were_subtracted(dtype):
    rng = np.random.default_rng(4)
    for case in range(90):
        dim = int(np.exp(rng.uniform(0, 6)))
        b, compressor = drawn(KINDS[case % len(KINDS)], dim, rng, dtype), Levels(MOST_BITS[case % 5])
        offers = compressor.offers(b, np.random.default_rng)
        assert compressor.at_most(b, dim) == len(offers.components) - 1
        assert offers.components[compressor.at_most(b, 7)] <= 7
        for amount in {1, len(offers.kept) - 1, *rng.integers(1, max(2, len(offers.kept)), 4).tolist()}:
            if not 0 < amount < len(offers.kept):
                continue
            message = compressor.compress(b, amount, np.random.default_rng)
            data = wire.encode(message)
            assert len(data) == message.nbytes == offers.nbytes[amount]
            assert message.components == offers.components[amount] == compressor.meaning(amount)[0]
            arrived = wire.decode(data, dim)
            np.testing.assert_array_equal(arrived.dense(), message.dense())
            sent = np.abs(b[message.indices])
            assert sent.min() > 0
            assert sent.min() >= np.abs(np.delete(b, message.indices)).max(initial=0)
            left = b.astype(np.float64) - arrived.dense().astype(np.float64)
            assert offers.kept[amount] == pytest.approx(
                np.square(left).sum(), rel=1e-6, abs=1e-13 * offers.kept[0]
            )
            assert len(data) >= compressor.least_bytes(np.asarray(message.components), dim)


# The engine's passes ---------------------------------------------------------------------------


def same_messages(fused: Any, b: np.ndarray, own: PlainVectors, amounts: np.ndarray) -> None:
    """Both paths say the same of these amounts, and hand the same over."""
    assert fused.possible(amounts).all()
    for name in ("components", "nbytes", "sizes"):
        np.testing.assert_array_equal(
            getattr(fused, name)(amounts), getattr(own, name)(amounts), err_msg=name
        )
    weights = np.sqrt(np.arange(2.0, 2.0 + len(b)))
    expected, kept = np.zeros(b.shape[1]), b.copy()
    for row, weight, message in zip(kept, weights, own.messages(amounts), strict=True):
        expected[message.indices] += weight * message.values
        row[message.indices] -= message.values
    total = fused.vectors[0] * 0
    fused.take(amounts).add_to(total, weights)
    np.testing.assert_array_equal(np.asarray(fused.vectors), kept)
    np.testing.assert_allclose(np.asarray(total), expected, rtol=1e-12, atol=0)
    np.testing.assert_allclose(fused.energy, np.square(kept).sum(axis=1), rtol=1e-9, atol=0)


@pytest.mark.parametrize("bits", [None, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_passes_do_what_the_plain_path_does(kind, bits):
    """The amounts that a search finds, all that can be sent, so many components, and any amounts."""
    rng, compressor = np.random.default_rng(5), Levels(bits)
    differ = searched = 0
    for case in range(24):
        dim, counts = (1, 2, 9, 60, 300)[case % 5], COUNTS[case % 3]
        b = drawn(kind, (4, dim), rng)
        b[case % 4] = 0
        fused = residuals_for(compressor, b.copy(), counts=counts)
        own = plain(b, compressor, counts)
        assert isinstance(fused, LevelResiduals)
        fused.expect(rng.choice([0.0, 0.3]), moment(4, dim))
        np.testing.assert_array_equal(fused.everything(), own.everything())
        np.testing.assert_array_equal(fused.at_most(3), own.at_most(3))
        way = case % 4
        if way == 0:
            amounts = own.at_most(rng.integers(0, dim + 1, 4))
        elif way == 1:
            amounts = rng.integers(0, own.everything() + 1)
        else:
            cost = some_cost(way == 3, dim, counts, rng)
            Phi = some_price(own.energy, cost, dim, counts, rng)
            amounts = search.amounts(1.0, Phi, cost, fused)
            expected = search.amounts(1.0, Phi, cost, own)
            searched += 4
            for place in np.flatnonzero(amounts != expected):
                # Sums in another order: as good, to the last digits.
                offers = own.offers(int(place))
                value = Phi[place] * cost(offers.sizes(counts)) + offers.kept
                assert value[amounts[place]] == pytest.approx(value[expected[place]], rel=1e-12)
                differ += 1
        same_messages(fused, b, own, amounts)
    assert differ <= 0.05 * searched


@pytest.mark.parametrize("stairs", [False, True], ids=["affine", "stairs"])
@pytest.mark.parametrize("counts", COUNTS)
def test_of_many_components_too_the_passes_do_what_the_plain_path_does(stairs, counts):
    rng, differ, searched = np.random.default_rng(8), 0, 0
    for case in range(8):
        dim, compressor = int(np.exp(rng.uniform(6.5, 8.5))), Levels(MOST_BITS[case % len(MOST_BITS)])
        b = drawn(KINDS[case % 4], (3, dim), rng, (np.float32, np.float64)[case % 2])
        fused, own = residuals_for(compressor, b.copy(), counts=counts), plain(b, compressor, counts)
        fused.expect(np.abs(b).max(axis=1) / 4, moment(3, dim))
        cost = some_cost(stairs, dim, counts, rng)
        Phi = some_price(own.energy, cost, dim, counts, rng)
        amounts = search.amounts(1.0, Phi, cost, fused)
        expected = search.amounts(1.0, Phi, cost, own)
        for place in range(3):
            found, wanted = (
                float(Phi[place] * cost(choices.sizes(chosen)[place]) + kept)
                for choices, chosen, kept in (
                    (fused, amounts, remainder(own, amounts, place)),
                    (own, expected, remainder(own, expected, place)),
                )
            )
            assert found <= wanted * (1 + 1e-6) + 1e-12
        searched, differ = searched + 3, differ + np.count_nonzero(amounts != expected)
    assert differ <= 0.1 * searched


def remainder(choices: PlainVectors, amounts: np.ndarray, place: int) -> float:
    """Return ‖b − v‖² of one row."""
    message = choices.messages(amounts)[place]
    left = choices._rows[place].astype(np.float64)
    left[message.indices] -= message.values
    return float(np.square(left).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_everything_leaves_the_least_behind(kind):
    """Not all components: beside tiny ones, large ones would be sent with fewer levels."""
    rng = np.random.default_rng(9)
    for dim in (1, 40, 2000):
        b, compressor = drawn(kind, (2, dim), rng), Levels()
        own, fused = plain(b, compressor, "bits"), residuals_for(compressor, b.copy(), counts="bits")
        fused.expect(0.0, moment(2, dim))
        for choices in (own, fused):
            amounts = choices.everything()
            assert choices.possible(amounts).all()
            for place in range(2):
                kept = compressor.offers(b[place], np.random.default_rng).kept
                assert (
                    kept[amounts[place]] <= kept.min() + 1e-3 * kept[0] * (dim > 512) + 2 * SPARED * kept[0]
                )


def test_rows_that_change_are_searched_anew():
    """What was found is forgotten as soon as rows are written to, or messages have left."""
    rng, cost = np.random.default_rng(6), Affine(np.asarray(1.0), np.asarray(0.1))
    b = rng.normal(size=(3, 80))
    fused, total = residuals_for(Levels(), b, counts="bytes"), np.zeros(80)
    for _ in range(4):
        fused.expect(0.1, moment(3, 80))
        amounts = search.amounts(1.0, 0.5, cost, fused)
        np.testing.assert_array_equal(amounts, search.amounts(1.0, 0.5, cost, plain(b, Levels(), "bytes")))
        before = total + b.sum(axis=0)
        fused.take(amounts).add_to(total, 1.0)
        np.testing.assert_allclose(total + b.sum(axis=0), before, rtol=0, atol=1e-12)
        b += rng.normal(size=b.shape)
        fused.changed()


def test_tensors_go_by_the_plain_path():
    rng = np.random.default_rng(7)
    b = rng.normal(size=(3, 60))
    made = residuals_for(Levels(), torch.from_numpy(b.copy()), counts="bits")
    assert isinstance(made, PlainResiduals)
    own = plain(b, Levels(), "bits")
    made.expect(0.0, moment(3, 60))
    cost = Affine(np.asarray(1.0), np.asarray(0.5))
    amounts = search.amounts(1.0, 1.0, cost, made)
    np.testing.assert_array_equal(amounts, search.amounts(1.0, 1.0, cost, own))
    assert (amounts > 0).any()
    same_messages(made, b, own, amounts)
