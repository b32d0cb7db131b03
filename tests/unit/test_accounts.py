"""Charged and spent against budgets, by the client that is worst off; and the sums behind it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from rich.console import Console

from flexfl.cli.tables import show_costs
from flexfl.results import Run
from flexfl.results.accounts import agree, share, worst
from flexfl.results.columns import PER_CLIENT, PER_ITERATION, SUMMED
from flexfl.results.store import MetricStore
from runs import write_run

CLIENTS = 4
SHARED = {"shared": [{"clients": [0, 1, 2], "limit": 2.0}], "others": 4.0}
RNG = np.random.default_rng(3)
RECORDS = [
    {"iteration": t, "computed": np.ones(CLIENTS)}
    | {name: float(RNG.random()) for name in PER_ITERATION if name != "computed"}
    | {name: RNG.random(CLIENTS) for name in PER_CLIENT}
    for t in range(9)
]


def totals(*spent: float, charged: tuple[float, ...] = ()) -> dict[str, np.ndarray]:
    return {
        "compute_spent": np.array(spent),
        "compute_cost": np.array(charged or spent),
        "uplink_cost": np.array(spent),
    }


def added_up(count: int) -> dict[str, np.ndarray]:
    """The sums of the first iterations, one after another."""
    sums = {name: np.zeros(CLIENTS) for name in SUMMED}
    for record in RECORDS[:count]:
        sums = {name: sums[name] + record[name] for name in SUMMED}
    return sums


def assert_known(store: MetricStore, count: int) -> None:
    for name, expected in added_up(count).items():
        assert_array_equal(store.totals(count)[name], expected)


# Who is worst off --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "who", "clients", "spent", "budget"),
    [
        (2.0, "client 3", [3], 4.0, 2.0),  # of 1, 2, 3, 4 a client and iteration
        ([0.1, 5.0, 5.0, 5.0], "client 0", [0], 1.0, 0.1),
        (
            {"shared": [{"clients": [0, 1, 2], "limit": 2.0}], "others": 4.0},
            "clients 0–2",
            [0, 1, 2],
            6.0,
            2.0,
        ),
        ({"shared": [{"clients": [1, 3], "limit": 3.0}]}, "clients 1, 3", [1, 3], 6.0, 3.0),
        ({"shared": [{"clients": [0, 1], "limit": 9.0}], "others": 1.0}, "client 3", [3], 4.0, 1.0),
    ],
)
def test_the_worst_has_the_largest_share_of_its_own_budget(
    given: Any, who: str, clients: list[int], spent: float, budget: float
) -> None:
    found = worst(totals(10, 20, 30, 40), 10, "uplink", given)
    assert found is not None
    entry = {"who": who, "clients": clients, "spent": spent, "charged": spent, "budget": budget}
    assert found == {"spent": entry, "charged": entry}


def test_the_worst_by_what_was_charged_may_be_another() -> None:
    found = worst(totals(9, 1, charged=(4.0, 5.0)), 10, "compute", 0.5, ["north", "south"])
    assert found is not None
    assert (found["spent"]["who"], share(found["spent"])) == ("north", pytest.approx(1.8))
    assert (found["charged"]["who"], share(found["charged"], "charged")) == ("south", pytest.approx(1.0))


def test_no_worst_without_a_budget_or_without_sums() -> None:
    assert worst(totals(1, 2), 10, "uplink", None) is None
    assert worst(totals(1, 2), 10, "uplink", [np.inf, np.inf]) is None
    assert worst(totals(1, 2), 10, "downlink", 0.5) is None
    assert worst(totals(1, 2), 0, "uplink", 0.5) is None
    assert worst(totals(1, np.nan), 10, "uplink", 0.5) is None
    assert worst(dict.fromkeys(SUMMED, np.asarray(np.nan)), 10, "uplink", 0.5) is None


def test_a_client_without_a_limit_is_never_the_worst() -> None:
    found = worst(totals(100, 1), 10, "uplink", [np.inf, 1.0])
    assert found is not None
    assert found["spent"]["who"] == "client 1"


def test_noise_of_sampling_is_no_difference_and_another_mean_is() -> None:
    draws = np.random.default_rng(7).random(2000)
    charged = np.full(2000, 0.25)
    assert agree((draws < 0.25).astype(float), charged)  # λ linear
    assert agree((draws[:20] < 0.25).astype(float), charged[:20])
    assert not agree((draws < 0.5).astype(float), charged)  # λ = q², q = 0.5
    assert agree(charged * 1.01, charged)
    assert not agree(charged * 1.03, charged)


# The sums ----------------------------------------------------------------------------------


def test_sums_are_kept_whether_or_not_clients_are_recorded(tmp_path: Path) -> None:
    for by_client in (True, False):
        path = tmp_path / f"{by_client}.sqlite"
        store = MetricStore(path, create=True)
        for record in RECORDS:
            store.add_iteration(record)
        assert_known(store, 9)  # before they are written
        store.commit(by_client=by_client)
        assert_known(store, 9)
        store.close()
        store = MetricStore(path)
        assert_known(store, 9)
        if by_client:
            np.testing.assert_allclose(store.totals(4)["uplink_cost"], added_up(4)["uplink_cost"])
        else:
            assert np.isnan(store.totals(4)["uplink_cost"]).all()
        store.close()


def test_sums_of_a_resumed_run_are_those_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sqlite"
    store = MetricStore(path, create=True)
    for record in RECORDS[:3]:
        store.add_iteration(record)
    store.commit(checkpoint=(3, "file", "digest"))
    for end in (5, 7):  # written past the checkpoint, for those who look on
        for record in RECORDS[end - 2 : end]:
            store.add_iteration(record)
        store.commit()
    assert store._db.execute("SELECT iteration FROM totals ORDER BY iteration").fetchall() == [(3,), (7,)]
    store.close()

    store = MetricStore(path)
    store.rewind(3)
    assert_known(store, 3)
    for record in RECORDS[3:]:
        store.add_iteration(record)
    store.commit(checkpoint=(9, "file", "digest"))
    assert_known(store, 9)
    assert store._db.execute("SELECT iteration FROM totals").fetchall() == [(9,)]
    store.close()


def test_sums_that_cannot_be_known_are_not_made_up(tmp_path: Path) -> None:
    store = MetricStore(tmp_path / "metrics.sqlite", create=True)
    for record in RECORDS[:5]:
        store.add_iteration(record)
    store.commit()
    store.rewind(4)  # neither a checkpoint nor the last commit
    for record in RECORDS[4:]:
        store.add_iteration(record)
    store.commit()
    assert all(np.isnan(values).all() for values in store.totals(9).values())
    store.close()


def test_a_run_cut_short_has_no_worst_client_unless_clients_are_recorded(tmp_path: Path) -> None:
    write_run(tmp_path / "run", iterations=20, train={"iterations": 20})
    whole = Run(tmp_path / "run").account("uplink")["worst"]
    assert whole["spent"]["who"] == "client 3"
    assert whole["spent"]["spent"] == pytest.approx(0.3)
    assert Run(tmp_path / "run", until=10).account("uplink")["worst"] is None


# The terminal ------------------------------------------------------------------------------


def shown(width: int, **cost: Any) -> str:
    whole = {"spent": 0.24, "charged": 0.25, "agree": True, "budget": 0.25, "worst": None}
    out = io.StringIO()
    show_costs(Console(file=out, width=width), {"compute": whole | cost, "downlink": whole})
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return " ".join(text.split())


def test_the_table_shows_what_is_charged_only_where_it_differs() -> None:
    text = shown(80)
    assert "charged" not in text
    assert "worst client" not in text
    text = shown(80, spent=0.42, agree=False)
    assert "compute │ 0.42 │ 0.25 │ 168% │" in text
    assert "charged │ 0.25 │ 0.25 │ 100% │" in text
    assert "charged: the expected cost λ(q), which the controller holds to the budget" in text


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_names_the_worst_client(width: int) -> None:
    entry = {"who": "client 17", "clients": [17], "spent": 0.25, "charged": 0.25, "budget": 0.25}
    text = shown(width, worst={"spent": entry, "charged": entry})
    assert "client 17: 100%" in text
    assert "charged" not in text
    noisy = entry | {"spent": 0.285}
    text = shown(width, worst={"spent": noisy, "charged": entry})
    assert "client 17: 114% (charged 100%)" in text
    assert "which the controller holds to the budget" in text
