"""Named streams: the same name gives the same numbers, anywhere and at any time."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from flexfl.streams import Entities, Moment, Streams

PURPOSES = [
    "partition",
    "minibatches",
    "augment",
    "dropout",
    "init",
    "compute/alpha",
    "compute/bernoulli",
    "uplink/fading",
    "uplink/send",
    "downlink/fading",
    "downlink/send",
]

seeds = st.integers(0, 2**63 - 1)
iterations = st.integers(0, 2**40)
purposes = st.text(max_size=20)


@given(seeds, purposes, iterations, st.integers(1, 50))
def test_the_same_name_gives_the_same_numbers(seed: int, purpose: str, iteration: int, count: int) -> None:
    first = Streams(seed).uniform(purpose, iteration, (count,))
    Streams(seed).uniform(purpose, iteration + 1, (count,))
    assert_array_equal(Streams(seed).uniform(purpose, iteration, (count,)), first)


@given(seeds, purposes, iterations, st.integers(0, 40), st.integers(0, 40))
def test_the_nth_number_does_not_depend_on_how_many_are_drawn(
    seed: int, purpose: str, iteration: int, few: int, more: int
) -> None:
    """Client n of a deployment draws the n-th number of the simulation."""
    streams = Streams(seed)
    long = streams.uniform(purpose, iteration, (few + more,))
    assert_array_equal(streams.uniform(purpose, iteration, (few,)), long[:few])


def test_shapes() -> None:
    streams = Streams(5)
    flat = streams.uniform("a", 3, (6,))
    assert_array_equal(streams.uniform("a", 3, (2, 3)), flat.reshape(2, 3), strict=True)
    assert_array_equal(streams.uniform("a", 3), flat[0].reshape(()), strict=True)


@given(seeds, seeds, purposes, purposes, iterations, iterations)
def test_different_names_give_different_numbers(
    seed: int, other_seed: int, purpose: str, other_purpose: str, iteration: int, other_iteration: int
) -> None:
    numbers = Streams(seed).uniform(purpose, iteration, (4,))
    for streams, name, t in (
        (Streams(other_seed), purpose, iteration),
        (Streams(seed), other_purpose, iteration),
        (Streams(seed), purpose, other_iteration),
    ):
        same = (streams, name, t) == (Streams(seed), purpose, iteration)
        assert np.array_equal(streams.uniform(name, t, (4,)), numbers) == same


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("seed", [0, 2**53, 2**60, 2**63 - 2, 2**63, 2**64 - 2])
def test_neighbouring_seeds_are_different_streams(seed: int, purpose: str) -> None:
    """Large seeds too: both words of the key count, to the last bit."""
    numbers = [Streams(s).generator(purpose, 3).random(2) for s in (seed, seed + 1)]
    assert not np.any(numbers[0] == numbers[1])


def test_all_streams_of_a_run_are_different() -> None:
    streams = [Streams(seed).uniform(p, t) for seed in range(5) for p in PURPOSES for t in range(20)]
    assert len(np.unique(streams)) == len(streams)


def test_counters_are_kept_apart() -> None:
    """Client 1 in epoch 2 is not client 2 in epoch 1, and a stream is no continuation of another."""
    streams = Streams(1)
    names = [(), (1,), (2,), (0, 1), (1, 2), (2, 1), (1, 2, 3), (3, 2, 1)]
    drawn = np.concatenate([streams.generator("a", *name).random(1000) for name in names])
    assert len(np.unique(drawn)) == len(drawn)


def test_numbers_are_in_the_open_interval() -> None:
    drawn = Streams(3).uniform("a", 0, (200_000,))
    assert drawn.dtype == np.float64
    assert drawn.min() > 0
    assert drawn.max() < 1


def test_roughly_uniform() -> None:
    """Over clients in one iteration, and over iterations for one client: mean, variance, deciles."""
    streams = Streams(11)
    over_clients = streams.uniform("a", 0, (20_000,))
    over_time = np.array([float(streams.uniform("a", t)) for t in range(5_000)])
    for drawn in (over_clients, over_time):
        spread = 1 / np.sqrt(len(drawn))
        assert abs(drawn.mean() - 1 / 2) < 4 * spread * np.sqrt(1 / 12)
        assert abs(drawn.var() - 1 / 12) < 4 * spread * np.sqrt(1 / 180)
        share = np.histogram(drawn, bins=10, range=(0, 1))[0] / len(drawn)
        assert np.all(np.abs(share - 0.1) < 4 * spread * 0.3)
    lagged = np.corrcoef(over_time[:-1], over_time[1:])[0, 1]
    assert abs(lagged) < 4 / np.sqrt(len(over_time))


def test_a_moment_draws_for_its_role() -> None:
    streams = Streams(2)
    moment = streams.moment("uplink", 7, 100, Entities.all_clients(3))
    assert (moment.iteration, moment.dim, moment.shape) == (7, 100, (3,))
    assert_array_equal(moment.uniform("fading"), streams.uniform("uplink/fading", 7, (3,)))
    assert_array_equal(moment.uniform("fading"), moment.uniform("fading"))
    server = streams.moment("downlink", 7, 100, Entities.the_server())
    assert isinstance(server, Moment)
    assert server.uniform("fading").shape == ()
    assert not np.any(server.uniform("fading") == moment.uniform("fading"))


def test_some_clients_see_their_share_of_what_all_see() -> None:
    streams = Streams(2)
    everyone = streams.moment("uplink", 7, 100, Entities.all_clients(5))
    some = streams.moment("uplink", 7, 100, Entities(np.array([4, 1]), 5))
    one = streams.moment("uplink", 7, 100, Entities.one_client(3, 5))
    numbers = everyone.uniform("fading")
    assert_array_equal(some.uniform("fading"), numbers[[4, 1]])
    assert_array_equal(one.uniform("fading"), numbers[3], strict=True)
    assert_array_equal(everyone.of(3).uniform("fading"), numbers[3])
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert some.pick(values).tolist() == [0.5, 0.2]
    assert (float(one.pick(values)), float(one.pick(7.0))) == (0.4, 7.0)
    assert everyone.pick(values).tolist() == values
    draws = [everyone.generator("compress", 3).random(), one.generator("compress").random()]
    assert draws[0] == draws[1] != everyone.generator("compress", 2).random()
    assert_array_equal(everyone.at(8).uniform("fading"), streams.uniform("uplink/fading", 8, (5,)))
    assert [some.entities.name(0), one.entities.name(0), Entities.the_server().name(0)] == [
        "client 4",
        "client 3",
        "the server",
    ]


def test_torch_seeds() -> None:
    seeds = [Streams(1).torch_seed("dropout", t) for t in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seeds[3] == Streams(1).torch_seed("dropout", 3)


def test_another_process_draws_the_same_numbers() -> None:
    """Python's own hash differs between processes; stream names may not."""
    code = "from flexfl.streams import Streams; print(Streams(9).uniform('uplink/send', 4, (3,)).tolist())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(Streams(9).uniform("uplink/send", 4, (3,)).tolist())


def test_global_generators_are_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    Streams(1).uniform("a", 0, (10,))
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
