"""Own costs, compressors and observers in a deployment: whole at every client, and across restarts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.in_memory import Loop, allow_own_members, deploy, final_params, small_spec
from deploy.own_members import Tariff, Watcher
from flexfl.results import Run
from flexfl.results.observer import Observer

NAMES = ["site-1", "site-2", "site-3", "site-4"]
HERE = "deploy.own_members"


def quick(**sections: Any) -> Any:
    return small_spec(train={"iterations": 20, "evaluate_every": 5}, **sections)


def assert_equal_runs(one: Path, other: Path) -> None:
    np.testing.assert_array_equal(final_params(one), final_params(other))
    for name, column in Run(one).iterations.items():
        if name == "clock":  # of the wall, which nobody can stop
            continue
        np.testing.assert_array_equal(column, Run(other).iterations[name], err_msg=name)
    for name, column in Run(one).clients.items():
        np.testing.assert_array_equal(column, Run(other).clients[name], err_msg=name)


def test_a_cost_with_a_memory_survives_restarts_of_clients_and_server_bit_for_bit(tmp_path: Path) -> None:
    channel = {"kind": f"{HERE}:MarkovChannel", "levels": [0.2, 3.0], "stay": 0.8}
    spec = quick(costs={"uplink": channel, "downlink": channel})
    whole = deploy(allow_own_members(tmp_path / "whole"), spec)
    parts = allow_own_members(tmp_path / "parts")
    for stop in (10, 30, 20, None):  # all processes go and come back
        resumed = deploy(parts, spec, Loop(parts, NAMES, stop_after=stop), resume=stop != 10)
    assert_equal_runs(whole, resumed)
    costs = Run(whole).clients["uplink_cost"]
    sent = Run(whole).clients["uplink_components"]
    price = costs[sent > 0] / sent[sent > 0]
    assert price.max() > 5 * price.min()  # good and bad channels were met


def test_a_list_in_an_own_parameter_arrives_whole_at_every_client(tmp_path: Path) -> None:
    prices = [0.1, 0.2, 0.3]  # fewer than clients, and not one for each
    spec = quick(costs={"uplink": {"kind": f"{HERE}:Tariff", "prices": prices}}, budget={"uplink": None})
    Tariff.seen.clear()
    run = Run(deploy(allow_own_members(tmp_path), spec))
    assert Tariff.seen == dict.fromkeys(range(4), prices)
    sent, cost = run.clients["uplink_components"], run.clients["uplink_cost"]
    times, clients = np.nonzero(sent)
    expected = 0.01 + np.array(prices)[(times + clients) % 3] * sent[times, clients] / 39760
    np.testing.assert_allclose(cost[times, clients], expected, rtol=1e-12)
    assert {0, 3} <= set(clients.tolist())


def test_a_list_with_one_for_each_client_is_picked_by_the_cost(tmp_path: Path) -> None:
    channel = {"kind": f"{HERE}:MarkovChannel", "levels": [0.2, 3.0], "stay": [1.0, 1.0, 0.0, 1.0]}
    run = Run(deploy(allow_own_members(tmp_path), quick(costs={"uplink": channel}, budget={"uplink": None})))
    sent, cost = run.clients["uplink_components"], run.clients["uplink_cost"]
    bad = np.where(sent > 0, (cost - 0.01) / np.maximum(sent, 1) * 39760 > 1.0, np.nan)
    assert not (bad[:, [0, 1, 3]] == 1.0).any()
    alternating = (np.arange(20) % 2 == 0).astype(float)  # client 2 changes in every iteration
    known = sent[:, 2] > 0
    np.testing.assert_array_equal(bad[known, 2], alternating[known])


def test_a_cost_that_becomes_nonsense_is_reported_to_the_server_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    costs = {"uplink": {"kind": f"{HERE}:Souring"}}
    spec = quick(costs=costs, control={"policy": "full"}, deploy={"deadline": 0.05})
    with caplog.at_level(logging.WARNING, "flexfl.deploy"):
        run = Run(deploy(allow_own_members(tmp_path), spec))
    expected = "site-2 cannot take part: costs.uplink must be finite and ≥ 0, got -"
    assert any(expected in record.getMessage() for record in caplog.records)
    took_part = run.clients["compute_prob"] > 0
    assert took_part[:, [0, 2, 3]].all()
    assert took_part[:5, 1].all()
    assert not took_part[5:, 1].any()


# Observers ------------------------------------------------------------------------------------------

WHOLE = [
    ("begin", 0, 20, 4, 39760, True),
    *(
        event
        for t in range(20)
        for event in ([("evaluated", t)] if t % 5 == 0 else []) + [("iteration", t, t + 1)]
    ),
    ("checkpoint", 20, ["params", "server_residual"]),
    ("evaluated", 20),
    ("end", 20, 20),
]


def test_an_observer_sees_everything_once_and_in_order(tmp_path: Path) -> None:
    deploy(tmp_path, quick(), observers=[Watcher()])
    assert Watcher.told == WHOLE


def test_a_tracker_of_the_spec_is_for_the_server_and_no_matter_of_the_sites(
    tmp_path: Path,
) -> None:
    spec = quick(track={"mine": {"kind": f"{HERE}:Watcher"}})
    Watcher.told.clear()
    deploy(tmp_path, spec)  # no site.toml allows it
    assert Watcher.told == WHOLE


def test_a_run_that_was_stopped_tells_nothing_twice(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    for stop in (10, 30, 20, None):
        link = Loop(tmp_path, NAMES, stop_after=stop)
        deploy(tmp_path, quick(), link, resume=stop != 10, observers=[Watcher()])
        told += Watcher.told
    assert [event for event in told if event[0] != "begin"] == WHOLE[1:]
    starts = [event[1] for event in told if event[0] == "begin"]
    assert starts == sorted(starts)
    assert starts[0] == 0 < starts[-1]


class Crashing(Observer):
    """Fails in the middle of a run, once."""

    def __init__(self, iteration: int) -> None:
        self._iteration = iteration

    def iteration(self, progress: Any, record: Any) -> None:
        if record["iteration"] == self._iteration:
            raise RuntimeError("no more")


def test_after_a_crash_nothing_is_missing_and_all_is_in_order(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no more"):
        deploy(tmp_path, quick(), observers=[Watcher(), Crashing(12)])
    before = list(Watcher.told)
    run = deploy(tmp_path, quick(), resume=True, observers=[Watcher()])
    after = list(Watcher.told)
    assert before == WHOLE[: len(before)]
    start = after[0][1]
    assert 0 <= start <= 13
    place = next(
        n for n, event in enumerate(WHOLE) if event in (("evaluated", start), ("iteration", start, start + 1))
    )
    assert after[1:] == WHOLE[place:]
    np.testing.assert_array_equal(Run(run).iterations["iteration"], np.arange(20))
    np.testing.assert_array_equal(Run(run).evaluations["iteration"], [0, 5, 10, 15, 20])
    whole = deploy(tmp_path / "whole", quick())
    np.testing.assert_array_equal(final_params(run), final_params(whole))
