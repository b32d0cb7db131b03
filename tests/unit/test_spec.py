"""Specs: those that ship, overrides, the way to TOML and back, and what a spec builds."""

from __future__ import annotations

import copy
import math
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pydantic import ValidationError

from flexfl.compress import RoundedTopK, TopK
from flexfl.control.baselines import (
    FixedCompute,
    PeriodicSend,
    RandomisedCompute,
    RandomisedSend,
    SendAll,
    TopKSend,
)
from flexfl.control.online import OnlineCompute, OnlineSend
from flexfl.costs import (
    Affine,
    ConstantCompute,
    ConstantMessage,
    CostModel,
    FadingChannel,
    PacketMessage,
    UniformCompute,
)
from flexfl.errors import InputError
from flexfl.results.trackers import CsvTracker
from flexfl.spec import Spec, load_spec, parse, shipped, to_toml
from flexfl.spec.build import (
    build_budgets,
    build_compressors,
    build_costs,
    build_policy,
    build_setup,
    build_trackers,
    check_setup,
    packages,
    refuse_for_simulation,
)
from flexfl.spec.load import merged
from flexfl.streams import Entities, Moment, Streams

ALL = {"compute": 0.25, "uplink": 0.01, "downlink": 0.02}


def rules_of(**sections: Any) -> Any:
    """The rules of the three knobs, for all clients and for the server."""
    spec = parse(sections)
    setup = build_setup(spec)
    clients = Entities.all_clients(spec.data.clients)
    return SimpleNamespace(
        compute=setup.knob(clients, 10).rule,
        uplink=setup.sender("uplink", clients, 10).rule,
        downlink=setup.sender("downlink", Entities.the_server(), 10).rule,
    )


def queues_of(rules: Any) -> dict[str, Any]:
    return {knob: rule.queue for knob, rule in vars(rules).items() if hasattr(rule, "queue")}


FADING = {"kind": "fading", "per_message": 0.05, "factor": 1.0, "counts": "components", "unit": ""}
"""The paper's cost of sending, with every default."""


# Shipped -----------------------------------------------------------------------------------


def test_what_ships() -> None:
    assert set(shipped()) == {"quickstart", "fashion", "cifar10", "frugal", "demo"}


@pytest.mark.parametrize("name", ["quickstart", "fashion", "cifar10"])
def test_a_shipped_spec_has_the_settings_of_the_paper(name: str) -> None:
    spec = load_spec(name)
    assert (spec.data.clients, spec.data.partition, spec.data.weights) == (100, "one-class", "equal")
    assert (spec.train.batch_size, spec.train.learning_rate, spec.train.evaluate_every) == (16, 0.1, 50)
    assert (spec.budget.compute, spec.budget.uplink, spec.budget.downlink) == (0.25, 0.01, 0.01)
    if name == "quickstart":
        assert dict(spec.control)["policy"] == "price"  # with nothing to tune
    else:
        control = spec.control
        assert (control.policy, control.tradeoff, control.initial_queue) == ("online", 0.02, 1.0)
        assert control.floor == {"compute": 0.0, "uplink": 0.001, "downlink": 0.001}
    assert spec.costs.compute == {"kind": "uniform", "low": 0.0, "high": 1.0, "unit": ""}
    assert spec.costs.uplink == FADING
    assert spec.costs.downlink == FADING | {"factor": 0.2}
    assert spec.compress.uplink == spec.compress.downlink == {"kind": "top-k"}


def test_frugal_is_half_of_the_budgets_with_every_bit_counted() -> None:
    frugal, fashion = load_spec("frugal"), load_spec("fashion")
    assert (frugal.data, frugal.model) == (fashion.data, fashion.model)
    for knob in ("uplink", "downlink"):
        assert getattr(frugal.budget, knob) == getattr(fashion.budget, knob) / 2
        assert getattr(frugal.costs, knob) == getattr(fashion.costs, knob) | {"counts": "bits"}
        assert getattr(frugal.compress, knob)["kind"] == "levels"
    assert (frugal.costs.compute, frugal.budget.compute) == (fashion.costs.compute, 0.25)
    assert (dict(frugal.control)["policy"], frugal.train.average) == ("price", True)


def test_what_the_shipped_specs_differ_in() -> None:
    quick, fashion, cifar = (load_spec(name) for name in ("quickstart", "fashion", "cifar10"))
    assert (quick.data.name, quick.model.name) == ("fashion-mini", "mlp")
    assert (fashion.data.name, fashion.model.name, fashion.train.iterations) == (
        "fashion-mnist",
        "mlp",
        10_000,
    )
    assert (cifar.data.name, cifar.model.name, cifar.train.iterations) == ("cifar10", "cnn", 10_000)
    assert (fashion.data.augment, cifar.data.augment) == ("none", "crop-flip")


def test_the_costs_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """β = 0.05 and γ = 1/(d·log2(1 + ζ)) up, a fifth of both down, α ~ U(0, 1)."""
    costs = build_costs(load_spec("fashion"))
    drawn = {"alpha": np.array([0.25, 0.75]), "fading": np.array([0.5, 0.9])}
    moment = Streams(1).moment("uplink", 0, 1000, Entities.all_clients(2))
    monkeypatch.setattr(Moment, "uniform", lambda moment, name: drawn[name])
    zeta = -2 * np.log(1 - drawn["fading"])
    up, down = costs["uplink"].at(moment), costs["downlink"].at(moment)
    assert_array_equal(costs["compute"].at(moment)(1.0), drawn["alpha"])
    np.testing.assert_allclose(up(10), 0.05 + 10 / (1000 * np.log2(1 + zeta)))
    np.testing.assert_allclose(down(10), up(10) / 5)
    assert_array_equal(up(0), 0)


def test_without_settings_the_defaults_are_those_of_the_paper_without_budgets() -> None:
    spec, paper = parse({}), load_spec("fashion")
    assert spec.control == paper.control
    assert spec.costs == paper.costs
    assert spec.train == paper.train
    assert dict(spec.budget) == {"compute": None, "uplink": None, "downlink": None, "hard": None}


def test_a_spec_cannot_be_changed() -> None:
    spec = load_spec("quickstart")
    for section, name in ((spec, "train"), (spec.train, "seed"), (spec.budget, "uplink")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, name, 3)


# Files and overrides -----------------------------------------------------------------------


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[train]\nseed = 7\n[control]\npolicy = "full"\n', encoding="utf-8")
    spec = load_spec(str(path), ["train.seed=8"])
    assert (spec.train.seed, spec.control.policy) == (8, "full")


@pytest.mark.parametrize(
    ("override", "section", "name", "value"),
    [
        ("train.iterations=500", "train", "iterations", 500),
        (" train . iterations = 500 ", "train", "iterations", 500),
        ("train.learning_rate=1e-2", "train", "learning_rate", 0.01),
        ("data.augment=crop-flip", "data", "augment", "crop-flip"),
        ('data.augment="crop-flip"', "data", "augment", "crop-flip"),
        ("record.clients=true", "record", "clients", True),
        ("budget.uplink=inf", "budget", "uplink", math.inf),
        ("control.tradeoff.uplink=0.5", "control", "tradeoff", {"uplink": 0.5}),
        ("model.options.hidden=8", "model", "options", {"hidden": 8}),
        ("data.path=a=b.npz", "data", "path", str(Path.cwd() / "a=b.npz")),
        ("data.path=", "data", "path", ""),
    ],
)
def test_an_override(override: str, section: str, name: str, value: Any) -> None:
    spec = load_spec("fashion", [override])
    assert getattr(getattr(spec, section), name) == value
    untouched = load_spec("fashion").plain()
    untouched[section].pop(name, None)
    changed = spec.plain()
    del changed[section][name]
    assert changed == untouched


def test_the_last_override_wins_and_tables_replace_numbers() -> None:
    group = '[{clients = "0-9", limit = 0.1}]'
    overrides = ["train.seed=1", "train.seed=2", f"budget.uplink.shared={group}", "budget.uplink.others=0.5"]
    spec = load_spec("quickstart", overrides)
    assert spec.train.seed == 2
    shared = {"clients": list(range(10)), "limit": 0.1}
    assert spec.budget.uplink == {"shared": [shared], "others": 0.5}


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        (["data.partition=iid"], "iid"),
        (["data.partition=shards"], "shards"),  # a name stays a name: stored runs are compared with it
        (["data.partition=given:parts"], "given:parts"),
        (["data.partition.kind=shards"], {"kind": "shards", "num_classes_per_partition": 2}),
        (
            ["data.partition={kind = 'dirichlet', alpha = 1}"],
            {"kind": "dirichlet", "alpha": 1.0, "self_balancing": False},
        ),
        (
            [
                "data.partition.kind=dirichlet",
                "data.partition.alpha=0.3",
                "data.partition.min_partition_size=2",
            ],
            {"kind": "dirichlet", "alpha": 0.3, "min_partition_size": 2, "self_balancing": False},
        ),
        (
            ["data.clients=2", "data.partition={kind = 'quantity', sizes = [1, 3]}"],
            {"kind": "quantity", "sizes": [1.0, 3.0]},
        ),
    ],
)
def test_a_partition_is_kept_as_it_was_given(overrides: list[str], kept: Any) -> None:
    spec = load_spec("quickstart", overrides)
    assert spec.data.partition == kept
    stored = tomllib.loads(to_toml(spec))
    assert stored["data"]["partition"] == kept
    assert parse(stored) == spec


# Another member: the old one's parameters go ----------------------------------------------

ANOTHER_POLICY = ["control.policy=randomised", "control.send_ratio=0.01"]


@pytest.mark.parametrize("overrides", [ANOTHER_POLICY, ANOTHER_POLICY[::-1]])
def test_another_policy_drops_the_parameters_of_the_old_one(overrides: list[str]) -> None:
    spec = load_spec("quickstart", overrides)  # which has policy = "online", tradeoff = 0.02
    assert spec.plain()["control"] == {"policy": "randomised", "send_ratio": 0.01}


def test_the_same_policy_keeps_its_parameters() -> None:
    spec = load_spec("quickstart", ["control.tradeoff=0.5", "control.policy=online"])
    assert spec.plain()["control"]["tradeoff"] == 0.5
    given = {"control": {"tradeoff": 0.5}}  # online by default
    assert merged(given, {"control": {"policy": "online"}})["control"] == {
        "tradeoff": 0.5,
        "policy": "online",
    }
    assert merged(given, {"control": {"policy": "full"}})["control"] == {"policy": "full"}


@pytest.mark.parametrize(
    ("given", "change", "expected"),
    [
        (
            {"control": {"policy": "online", "tradeoff": 1, "uplink": {"policy": "full"}}},
            {"control": {"policy": "top-k", "send_ratio": 0.01}},
            {"control": {"policy": "top-k", "send_ratio": 0.01, "uplink": {"policy": "full"}}},
        ),
        (
            {"control": {"uplink": {"policy": "top-k", "send_ratio": 0.1}}},
            {"control": {"uplink": {"policy": "periodic", "send_every": 2}}},
            {"control": {"uplink": {"policy": "periodic", "send_every": 2}}},
        ),
        (
            {"costs": {"uplink": {"factor": 2}, "compute": {"high": 2}}},
            {"costs": {"uplink": {"kind": "packets"}, "compute": {"kind": "uniform"}}},
            {"costs": {"uplink": {"kind": "packets"}, "compute": {"high": 2, "kind": "uniform"}}},
        ),
        (
            {"costs": {"uplink": {"kind": "own:Cost", "prices": [1]}}},
            {"costs": {"uplink": {"kind": "own:Other"}}},
            {"costs": {"uplink": {"kind": "own:Other"}}},
        ),
        (
            {"data": {"partition": "shards"}},
            {"data": {"partition": {"num_classes_per_partition": 3}}},
            {"data": {"partition": {"kind": "shards", "num_classes_per_partition": 3}}},
        ),
        (
            {"data": {"partition": {"kind": "shards", "num_classes_per_partition": 3}}},
            {"data": {"partition": "iid"}},
            {"data": {"partition": "iid"}},
        ),
        (
            {"compress": {"uplink": {"kind": "rounded", "values": "float16"}}},
            {"compress": {"uplink": {"kind": "top-k"}}},
            {"compress": {"uplink": {"kind": "top-k"}}},
        ),
        (
            {"track": {"a": {"kind": "csv", "path": "x.csv"}, "b": "csv"}},
            {"track": {"a": {"kind": "own:Tracker"}, "b": {"path": "y.csv"}}},
            {"track": {"a": {"kind": "own:Tracker"}, "b": {"kind": "csv", "path": "y.csv"}}},
        ),
        (
            {"model": {"options": {"hidden": 3}}},
            {"model": {"name": "cnn"}},
            {"model": {"name": "cnn"}},
        ),
    ],
)
def test_merging(given: dict[str, Any], change: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(given)
    assert merged(given, change) == expected
    assert given == before


def test_another_kind_of_cost_by_an_override() -> None:
    spec = load_spec("quickstart", ["costs.downlink.per_packet=2", "costs.downlink.kind=packets"])
    assert spec.costs.downlink == {
        "kind": "packets",
        "per_packet": 2.0,
        "components_per_packet": 180.0,
        "counts": "components",
        "unit": "",
    }
    stored = tomllib.loads(to_toml(spec))
    assert merged(stored, {"costs": {"downlink": {"kind": "constant"}}})["costs"]["downlink"] == {
        "kind": "constant"
    }


def test_changes_that_belong_together_may_come_in_any_order() -> None:
    given = {"control": {"policy": "online", "tradeoff": 1}}
    one, two = {"control": {"send_ratio": 0.1}}, {"control": {"policy": "top-k"}}
    expected = {"control": {"policy": "top-k", "send_ratio": 0.1}}
    assert merged(given, one, two) == merged(given, two, one) == expected
    assert merged(merged(given, one), two) == {"control": {"policy": "top-k"}}  # one after the other


def test_a_table_that_is_set_can_be_added_to() -> None:
    overrides = ["costs.uplink={kind = 'packets'}", "costs.uplink.per_packet=3"]
    assert load_spec("quickstart", overrides).costs.uplink["per_packet"] == 3.0
    overrides = ["control.tradeoff={uplink = 1}", "control.tradeoff.downlink=2"]
    assert load_spec("fashion", overrides).plain()["control"]["tradeoff"] == {
        "uplink": 1.0,
        "downlink": 2.0,
    }
    overrides = ["data.partition=shards", "data.partition.num_classes_per_partition=3"]
    expected = {"kind": "shards", "num_classes_per_partition": 3}
    assert load_spec("quickstart", overrides).data.partition == expected


# TOML and back -----------------------------------------------------------------------------

number = st.floats(1e-6, 1e6)
by_client = st.lists(number, min_size=3, max_size=3)
budgets = st.one_of(
    number,
    st.just(math.inf),
    by_client,
    st.just({"shared": [{"clients": "0-1", "limit": 0.5}], "others": 2}),
    st.just({"shared": [{"clients": [2, 0], "limit": 1}, {"clients": [1], "limit": math.inf}]}),
)
by_knob = st.fixed_dictionaries({}, optional=dict.fromkeys(("compute", "uplink", "downlink"), number))
by_knob_and_client = st.fixed_dictionaries({"compute": by_client, "uplink": by_client, "downlink": number})
specs = st.fixed_dictionaries(
    {
        "data": st.fixed_dictionaries(
            {"clients": st.just(3), "weights": st.sampled_from(["equal", [0.2, 0.3, 0.5]])}
        )
    },
    optional={
        "train": st.fixed_dictionaries({}, optional={"seed": st.integers(0, 2**63), "learning_rate": number}),
        "model": st.fixed_dictionaries({"options": st.dictionaries(st.text("abc", min_size=1), number)}),
        "budget": st.fixed_dictionaries(
            {}, optional={"compute": budgets, "uplink": budgets, "downlink": number}
        ),
        "control": st.fixed_dictionaries(
            {},
            optional={
                "tradeoff": number | by_knob_and_client,
                "initial_queue": number | by_knob,
                "floor": by_knob,
            },
        ),
        "compress": st.fixed_dictionaries(
            {},
            optional={"uplink": st.sampled_from(["top-k", "rounded", {"kind": "own:Compressor", "x": [1]}])},
        ),
        "track": st.dictionaries(st.text("abc", min_size=1), st.sampled_from(["csv", {"kind": "csv"}])),
        "costs": st.fixed_dictionaries(
            {},
            optional={
                "compute": st.builds(lambda high: {"high": high}, by_client),
                "uplink": st.builds(lambda cost: {"kind": "packets", "per_packet": cost}, number | by_client),
            },
        ),
    },
)


@given(specs)
def test_to_toml_and_back(settings: dict[str, Any]) -> None:
    spec = parse(settings)
    assert parse(tomllib.loads(to_toml(spec))) == spec


@pytest.mark.parametrize("name", ["quickstart", "fashion", "cifar10"])
def test_a_shipped_spec_to_toml_and_back(name: str) -> None:
    spec = load_spec(name)
    assert parse(tomllib.loads(to_toml(spec))) == spec
    assert "None" not in to_toml(spec)


def test_the_resolved_spec_names_every_default() -> None:
    stored = tomllib.loads(to_toml(parse({})))
    assert stored["costs"]["uplink"] == FADING
    assert stored["control"]["floor"]["uplink"] == 0.001
    assert stored["engine"]["checkpoint_every"] == 500


# What a spec builds: rules -----------------------------------------------------------------

RULES = [
    ({"policy": "online"}, OnlineCompute, OnlineSend, OnlineSend),
    ({"policy": "randomised", "send_ratio": 0.1}, RandomisedCompute, RandomisedSend, RandomisedSend),
    ({"policy": "full"}, FixedCompute, SendAll, SendAll),
    ({"policy": "periodic", "send_every": 5}, FixedCompute, PeriodicSend, SendAll),
    ({"policy": "top-k", "send_ratio": 0.1}, FixedCompute, TopKSend, TopKSend),
    ({"policy": "fixed-prob", "compute_prob": 0.3}, FixedCompute, SendAll, SendAll),
    ({}, OnlineCompute, OnlineSend, OnlineSend),
    ({"uplink": "full"}, OnlineCompute, SendAll, OnlineSend),
    ({"policy": "full", "uplink": {"policy": "online"}}, FixedCompute, OnlineSend, SendAll),
    (
        {
            "compute": {"policy": "randomised", "send_ratio": 1},
            "uplink": {"policy": "periodic", "send_every": 2},
            "downlink": {"policy": "top-k", "send_ratio": {"downlink": 0.5}},
        },
        RandomisedCompute,
        PeriodicSend,
        TopKSend,
    ),
]


@pytest.mark.parametrize(("control", "compute", "uplink", "downlink"), RULES)
def test_the_rules_of_a_policy(control: dict[str, Any], compute: type, uplink: type, downlink: type) -> None:
    policy = rules_of(data={"clients": 4}, budget=ALL, control=control)
    found = (type(policy.compute), type(policy.uplink), type(policy.downlink))
    assert found == (compute, uplink, downlink)


@pytest.mark.parametrize("knob", ["compute", "uplink", "downlink"])
def test_a_knob_without_budget_is_left_uncontrolled(knob: str) -> None:
    budget = {name: limit for name, limit in ALL.items() if name != knob}
    policy = rules_of(budget=budget)
    assert type(getattr(policy, knob)) is (FixedCompute if knob == "compute" else SendAll)
    assert set(queues_of(policy)) == set(budget)


def test_the_settings_of_the_baselines_reach_their_rules() -> None:
    budget = {"compute": [0.1, 0.2], "uplink": 0.01, "downlink": 0.02}
    control = {"policy": "randomised", "send_ratio": {"uplink": [0.1, 0.2], "downlink": 0.5}}
    policy = rules_of(data={"clients": 2}, budget=budget, control=control)
    assert_array_equal(policy.compute.budget, [0.1, 0.2])
    assert policy.compute.mean_cost == 0.5
    assert_array_equal(policy.uplink.budget, [0.01, 0.01])
    assert_array_equal(policy.uplink.ratio, [0.1, 0.2])
    assert (policy.downlink.budget, policy.downlink.ratio) == (0.02, 0.5)
    assert queues_of(policy) == {}

    fixed = rules_of(data={"clients": 2}, control={"policy": "fixed-prob", "compute_prob": [0.5, 1]})
    assert_array_equal(fixed.compute.prob, [0.5, 1])
    assert rules_of(control={"policy": "periodic", "send_every": 7}).uplink.every == 7
    assert rules_of(control={"policy": "top-k", "send_ratio": 0.25}).downlink.ratio == 0.25


def test_randomised_without_budgets_always_sends() -> None:
    policy = rules_of(control={"policy": "randomised", "send_ratio": 0.1})
    assert isinstance(policy.compute, FixedCompute)
    assert_array_equal(policy.uplink.budget, np.full(100, math.inf))
    assert policy.downlink.budget == math.inf


def test_randomised_divides_a_shared_budget_evenly() -> None:
    shared = {"shared": [{"clients": [0, 3], "limit": 0.4}], "others": 0.1}
    control = {"policy": "randomised", "send_ratio": 0.1}
    policy = rules_of(data={"clients": 4}, budget={"compute": shared, "uplink": shared}, control=control)
    assert_array_equal(policy.compute.budget, [0.2, 0.1, 0.1, 0.2])
    assert_array_equal(policy.uplink.budget, [0.2, 0.1, 0.1, 0.2])


# V, W, floors and budgets ------------------------------------------------------------------


def test_one_number_reaches_all_knobs() -> None:
    control = {"tradeoff": 0.5, "initial_queue": 2.0, "floor": 0.25}
    policy = rules_of(data={"clients": 3}, budget=ALL, control=control)
    assert (policy.compute.tradeoff, policy.uplink.tradeoff, policy.downlink.tradeoff) == (0.5, 0.5, 0.5)
    for knob, shape in (("compute", (3,)), ("uplink", (3,)), ("downlink", ())):
        queue = queues_of(policy)[knob]
        assert_array_equal(queue.length, np.full(shape, 2.0), strict=True)
        assert_array_equal(queue.floor, 0.25)
        assert_array_equal(queue.budget, np.full(shape, ALL[knob]), strict=True)


def test_settings_by_knob_and_by_client_reach_their_rules() -> None:
    control = {
        "tradeoff": {"compute": [0.1, 0.2, 0.3], "downlink": 0.7},
        "initial_queue": {"uplink": [1, 2, 3], "downlink": 5},
        "floor": {"uplink": 0.5},
    }
    policy = rules_of(data={"clients": 3}, budget=ALL, control=control)
    assert_array_equal(policy.compute.tradeoff, [0.1, 0.2, 0.3])
    assert policy.uplink.tradeoff == 0.02  # what a table leaves out keeps its default
    assert policy.downlink.tradeoff == 0.7
    queues = queues_of(policy)
    assert_array_equal(queues["compute"].length, [1, 1, 1])
    assert_array_equal(queues["uplink"].length, [1, 2, 3])
    assert queues["downlink"].length == 5
    assert (queues["compute"].floor, queues["uplink"].floor, queues["downlink"].floor) == (0, 0.5, 0.001)


def test_budgets_by_client() -> None:
    policy = rules_of(data={"clients": 3}, budget={"compute": [0.1, math.inf, 0.3]})
    assert_array_equal(policy.compute.queue.budget, [0.1, math.inf, 0.3])
    assert_array_equal(policy.compute.queue.unlimited, [False, True, False])


def test_the_layout_of_shared_budgets() -> None:
    groups = [{"clients": "1-2", "limit": 0.6}, {"clients": [5, 0], "limit": 0.4}]
    spec = parse({"data": {"clients": 6}, "budget": {"uplink": {"shared": groups, "others": 0.1}}})
    budgets = build_budgets(spec)
    layout = budgets["uplink"]
    assert layout is not None
    assert_array_equal(layout.members, [1, 0, 0, 2, 3, 1])
    assert_array_equal(layout.limits, [0.6, 0.4, 0.1, 0.1])
    assert budgets["compute"] is None

    queue = build_setup(spec).sender("uplink", Entities.all_clients(6), 10).rule.queue
    queue.charge(np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]))
    np.testing.assert_allclose(queue.length, [1 + 6 - 0.6, 1 + 33 - 0.4, 1 + 8 - 0.1, 1 + 16 - 0.1])
    np.testing.assert_allclose(queue.pressure, queue.length[[1, 0, 0, 2, 3, 1]])


def test_clients_outside_all_groups_have_no_limit_by_default() -> None:
    spec = parse({"data": {"clients": 3}, "budget": {"compute": {"shared": [{"clients": [1], "limit": 2}]}}})
    queue = build_setup(spec).knob(Entities.all_clients(3), 10).rule.queue
    assert_array_equal(queue.unlimited, [True, False, True])


@given(st.data())
def test_every_client_of_a_shared_budget_has_one_queue(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 12))
    owner = data.draw(st.lists(st.integers(-1, 3), min_size=clients, max_size=clients))
    owner[0] = 0  # at least one group
    groups = [[n for n in range(clients) if owner[n] == g] for g in range(4)]
    table = {"shared": [{"clients": g, "limit": 1.0 + i} for i, g in enumerate(groups) if g], "others": 9.0}
    layout = build_budgets(parse({"data": {"clients": clients}, "budget": {"uplink": table}}))["uplink"]
    assert layout is not None
    assert layout.members is not None
    assert set(layout.members) == set(range(len(layout.limits)))
    for i, group in enumerate(groups):
        assert {layout.limits[layout.members[n]] for n in group} == ({1.0 + i} if group else set())
    alone = [n for n in range(clients) if owner[n] < 0]
    assert len({layout.members[n] for n in alone}) == len(alone)
    assert all(layout.limits[layout.members[n]] == 9.0 for n in alone)


# Costs -------------------------------------------------------------------------------------


def test_the_kinds_of_costs() -> None:
    costs = {
        "compute": {"kind": "constant", "per_gradient": [0.1, 0.2]},
        "uplink": {"kind": "constant", "per_message": 0.5},
        "downlink": {"kind": "packets", "components_per_packet": 7},
    }
    built = build_costs(parse({"data": {"clients": 2}, "costs": costs}))
    assert type(built["compute"]) is ConstantCompute
    assert_array_equal(built["compute"].per_gradient, [0.1, 0.2])
    assert built["uplink"] == ConstantMessage(per_message=0.5)
    assert built["downlink"] == PacketMessage(components_per_packet=7)
    assert all(isinstance(model, CostModel) for model in built.values())


def test_the_default_costs() -> None:
    built = build_costs(parse({}))
    assert built == {
        "compute": UniformCompute(),
        "uplink": FadingChannel(),
        "downlink": FadingChannel(factor=0.2),
    }


OWN = """
from dataclasses import dataclass
from flexfl.costs import Affine

@dataclass(frozen=True)
class Dear:
    price: float = 1.0

    def at(self, moment):
        return Affine(self.price, 0.0)
"""


def test_costs_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_costs_of_this_test.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the working folder is added to it
    kind = "own_costs_of_this_test:Dear"
    spec = load_spec("quickstart", [f"costs.uplink.kind={kind}", "costs.uplink.price=3.5"])
    assert spec.costs.uplink["price"] == 3.5
    assert parse(tomllib.loads(to_toml(spec))) == spec
    cost = build_costs(spec)["uplink"].at(Streams(1).moment("uplink", 0, 10, Entities.all_clients(2)))
    assert cost == Affine(3.5, 0.0)


@pytest.mark.parametrize("kind", ["no_such_module_here:Name", "flexfl.costs:NoSuchName"])
def test_an_import_path_that_leads_nowhere(kind: str) -> None:
    spec = parse({"costs": {"uplink": {"kind": kind}}})
    with pytest.raises(InputError) as caught:
        build_costs(spec)
    (fault,) = caught.value.faults
    assert (fault.field, fault.value) == ("costs.uplink.kind", kind)


@pytest.mark.parametrize(
    "table", [{"kind": "flexfl.costs:ConstantMessage", "prize": 1.0}, {"kind": "builtins:dict"}], ids=str
)
def test_an_object_at_an_import_path_that_is_no_cost(table: dict[str, Any]) -> None:
    """Parameters that it does not take, and something that is no `CostModel`."""
    spec = parse({"costs": {"uplink": table}})
    with pytest.raises(InputError, match=r"costs\.uplink"):
        build_costs(spec)


def test_an_object_handed_over_in_python_is_taken() -> None:
    @dataclass(frozen=True)
    class Free:
        def at(self, moment: Moment) -> Affine:
            return Affine(np.zeros(()), np.zeros(()))

    given_spec = parse({"costs": {"uplink": {"kind": "given:__main__.Free"}}})
    assert build_costs(given_spec, {"uplink": Free()})["uplink"] == Free()
    with pytest.raises(InputError, match="Python object"):
        build_costs(given_spec)


def test_parse_is_the_same_for_a_spec_and_its_plain_form() -> None:
    spec = load_spec(
        "cifar10", ["budget.uplink.shared=[{clients=[1], limit=2}]", "control.tradeoff.uplink=1"]
    )
    assert isinstance(spec, Spec)
    assert parse(spec.plain()) == spec


OWN_COSTS = """
import numpy as np

class Hourly:
    def __init__(self, prices, names=()):
        if len(prices) > 3:
            raise ValueError("three prices at most")
        self.prices, self.names = prices, names

    def at(self, moment):
        price = self.prices[moment.iteration % len(self.prices)]
        return lambda amount: price * np.asarray(amount)
"""


def test_costs_of_ones_own_take_lists_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hourly_costs.py").write_text(OWN_COSTS)
    monkeypatch.syspath_prepend(tmp_path)
    table = {"kind": "hourly_costs:Hourly", "prices": [0.1, 0.2, 0.3], "names": ["night", "day"]}
    spec = parse({"data": {"clients": 10}, "costs": {"compute": table}})
    model = build_costs(spec)["compute"]
    assert (model.prices, model.names) == (table["prices"], table["names"])  # lists stay lists
    check_setup(build_setup(spec), 10, 5)
    longer = parse({"costs": {"compute": {**table, "prices": [1.0] * 4}}})
    with pytest.raises(InputError, match=r"must have parameters that fit .*three prices at most"):
        build_costs(longer)


# Compressors and trackers -------------------------------------------------------------------


def test_compressors() -> None:
    assert build_compressors(parse({})) == {"uplink": TopK(), "downlink": TopK()}
    table = {"kind": "rounded", "values": "bfloat16"}
    spec = parse({"compress": {"uplink": table, "downlink": "rounded"}})
    assert build_compressors(spec) == {"uplink": RoundedTopK("bfloat16"), "downlink": RoundedTopK("float16")}
    given = {"uplink": TopK()}
    assert build_compressors(spec, given)["uplink"] is given["uplink"]
    assert build_setup(spec, compressors=given).compressors["downlink"] == RoundedTopK("float16")


def test_sections_by_default_are_left_out_of_the_plain_form() -> None:
    assert {"compress", "track", "deploy"}.isdisjoint(parse({}).plain())
    given = {"compress": {"uplink": "rounded"}, "track": {"a": "csv"}, "deploy": {"wait": 1.0}}
    stored = parse(given).plain()
    assert stored["compress"]["uplink"] == {"kind": "rounded", "values": "float16"}
    assert stored["track"] == {"a": {"kind": "csv", "path": "metrics.csv"}}
    assert parse(stored) == parse(given)


def test_trackers() -> None:
    assert build_trackers(parse({})) == []
    one, two = build_trackers(parse({"track": {"a": "csv", "b": {"kind": "csv", "path": "b.csv"}}}))
    assert (one, two) == (CsvTracker(), CsvTracker("b.csv"))
    with pytest.raises(InputError, match=r"track\.a\.kind must make a Observer"):
        build_trackers(parse({"track": {"a": {"kind": "builtins:dict"}}}))


# Code of one's own ---------------------------------------------------------------------------

EXPLODES = "raise RuntimeError('imported')\n"


@pytest.fixture
def exploding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that must not be imported."""
    (tmp_path / "explodes_on_import.py").write_text(EXPLODES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "explodes_on_import"


def test_nothing_is_imported_to_parse_a_spec(exploding: str) -> None:
    """So that a site can look at the packages before anything of them runs."""
    own = {"kind": f"{exploding}:Own", "anything": [1, 2, 3]}
    policy = {"policy": f"{exploding}.deep:Own", "anything": [1, 2, 3]}
    given = {
        "data": {"clients": 5, "partition": own},
        "model": {"name": f"{exploding}:net"},
        "control": {**policy, "uplink": policy},
        "costs": dict.fromkeys(ALL, own),
        "compress": {"uplink": own},
        "track": {"here": own},
    }
    spec = parse(given)
    assert parse(tomllib.loads(to_toml(spec))) == spec
    assert packages(spec) == dict.fromkeys(
        [
            "model.name",
            "data.partition.kind",
            "control.policy",
            "control.uplink.policy",
            "costs.compute.kind",
            "costs.uplink.kind",
            "costs.downlink.kind",
            "compress.uplink.kind",
            "track.here.kind",
        ],
        exploding,
    )
    assert packages(parse({"data": {"partition": f"{exploding}:split"}})) == {"data.partition": exploding}
    assert packages(parse({})) == {}
    assert exploding not in sys.modules
    for build in (build_costs, build_policy, build_compressors, build_trackers):
        with pytest.raises(InputError, match="RuntimeError: imported"):
            build(spec)


OWN_POLICY = """
from dataclasses import dataclass, field
import numpy as np
from flexfl.control import Full, Rule

class Steps(Rule):
    def __init__(self, levels):
        self.levels, self.decided = levels, 0

    def decide(self, cost, moment):
        self.decided += 1
        return np.full(moment.shape, self.levels[moment.iteration % len(self.levels)])

@dataclass(frozen=True)
class Stairs(Full):
    levels: list[float] = field(default_factory=lambda: [0.5])
    made: list = field(default_factory=list)

    def compute_rule(self, scope):
        self.made.append(Steps(self.levels))
        return self.made[-1]

class Broken(Stairs):
    def compute_rule(self, scope):
        raise KeyError("no such client")

class Wild(Full):
    def compute_rule(self, scope):
        return Steps([2.0])
"""


@pytest.fixture
def own_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_policy_of_this_test.py").write_text(OWN_POLICY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_policy_of_this_test"


def test_a_policy_of_ones_own(own_policy: str) -> None:
    table = {"policy": f"{own_policy}:Stairs", "levels": [0.1, 0.2, 0.3]}
    spec = parse({"data": {"clients": 2}, "control": table})
    assert spec.plain()["control"] == table
    setup = build_setup(spec)
    assert setup.policy.levels == [0.1, 0.2, 0.3]
    check_setup(setup, 2, 5)
    assert setup.policy.made == []  # tried on a copy
    knob = setup.knob(Entities.all_clients(2), 5)
    assert_array_equal([knob.decide(t).prob[0] for t in range(4)], [0.1, 0.2, 0.3, 0.1])

    mixed = build_policy(parse({"control": {"policy": "full", "compute": table}}))
    assert mixed.policies["compute"].levels == [0.1, 0.2, 0.3]
    assert type(mixed.policies["uplink"]).__name__ == "Full"


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (
            {"policy": "OWN:Stairs", "level": [0.1]},
            r"control\.level is not a parameter of .*did you mean levels",
        ),
        ({"policy": "OWN:Stairs", "levels": 0.1}, r"control\.levels must be a list"),
        ({"policy": "OWN:Stairs", "levels": ["a"]}, r"control\.levels\.0 must be a number"),
        ({"policy": "OWN:Nobody"}, r"control\.policy must name something that can be imported"),
        ({"policy": "OWN:OWN"}, r"control\.policy must name something that can be imported"),
        ({"policy": "OWN:np"}, r"control\.policy must name a class or function"),
        ({"policy": "OWN:Steps", "levels": []}, r"control\.policy must make a Policy"),
        ({"policy": "OWN:Broken"}, r"control\.policy must make a rule .*KeyError: 'no such client'.*Broken"),
        ({"policy": "OWN:Wild"}, r"control\.policy .*'Wild'.*a probability q in \(0, 1\], got 2\.0"),
    ],
)
def test_a_policy_of_ones_own_that_is_wrong(own_policy: str, table: dict[str, Any], found: str) -> None:
    table = {
        key: value.replace("OWN", own_policy) if key == "policy" else value for key, value in table.items()
    }
    spec = parse({"data": {"clients": 2}, "control": table})
    with pytest.raises(InputError, match=found):
        check_setup(build_setup(spec), 2, 5)


class Fickle:
    """A cost with a memory that counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def at(self, moment: Moment) -> Affine:
        self.asked += 1
        return Affine(np.zeros(()), np.ones(()))


def test_the_trial_leaves_memories_alone() -> None:
    costs = {"uplink": Fickle(), "downlink": Fickle()}
    setup = build_setup(parse({"data": {"clients": 3}, "budget": ALL}), costs=costs)
    check_setup(setup, 3, 7)
    assert setup.costs["uplink"] is costs["uplink"]
    assert [model.asked for model in costs.values()] == [0, 0]


class Bad:
    """A member whose parts can be made to fail."""

    def __init__(self, at: Any = None, offers: Any = None, compress: Any = None) -> None:
        self._at, self._offers, self._compress = at, offers, compress

    def at(self, moment: Moment) -> Any:
        return self._at(moment)

    def offers(self, vector: Any, random: Any) -> Any:
        return self._offers(vector, random)

    def compress(self, vector: Any, amount: int, random: Any) -> Any:
        return self._compress(vector, amount, random)


@pytest.mark.parametrize(
    ("costs", "compressors", "found"),
    [
        (
            {"uplink": Bad(lambda m: lambda k: np.ones(7))},
            {},
            r"costs\.uplink must give a cost for each of the 3",
        ),
        ({"compute": Bad(lambda m: lambda q: "dear")}, {}, r"costs\.compute .*array of <U4.*'Bad'"),
        ({"downlink": Bad(lambda m: 1 / 0)}, {}, r"costs\.downlink must give one cost \(ZeroDivisionError"),
        ({"uplink": Bad(lambda m: 5)}, {}, r"costs\.uplink .*not callable"),
        ({}, {"uplink": Bad(offers=lambda *_: None)}, r"compress\.uplink .*offers returned NoneType.*'Bad'"),
        ({}, {"downlink": Bad(offers=TopK().offers, compress=lambda *_: b"")}, r"compress\.downlink .*bytes"),
        (
            {},
            {"uplink": Bad(offers=TopK().offers, compress=RoundedTopK().compress)},
            r"compress\.uplink must give the messages that it offers \(.*offered were",
        ),
    ],
)
def test_members_that_fail_are_named(costs: Any, compressors: Any, found: str) -> None:
    spec = parse({"data": {"clients": 3}, "budget": ALL})
    with pytest.raises(InputError, match=found) as caught:
        check_setup(build_setup(spec, costs=costs, compressors=compressors), 3, 50)
    assert len(caught.value.faults) == 1


def test_objects_of_another_kind_are_refused() -> None:
    spec = parse({})
    with pytest.raises(InputError, match=r"costs\.uplink\.kind must be a CostModel, got 'dict'"):
        build_costs(spec, {"uplink": {}})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"control\.policy must be a Policy, got 'type'"):
        build_setup(spec, policy=OnlineCompute)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"compress\.uplink\.kind must be a Compressor, got 'the class TopK'"
    ):
        build_setup(spec, compressors={"uplink": TopK})  # type: ignore[dict-item]


# Simulation and deployment -------------------------------------------------------------------


def test_what_only_a_deployment_can_do() -> None:
    refuse_for_simulation(parse({"costs": {"uplink": {"kind": "measured"}}}))  # bytes are known there, too
    with pytest.raises(InputError, match=r"costs\.compute\.kind is only available in deployments"):
        refuse_for_simulation(parse({"costs": {"compute": {"kind": "measured"}}}))
    own = {"kind": "flexfl.costs:MeasuredCompute"}
    with pytest.raises(InputError, match=r"costs\.compute\.kind is only available in deployments"):
        refuse_for_simulation(parse({"costs": {"compute": own}}))
