"""Specs: those that ship, overrides, the way to TOML and back, and what a spec builds."""

from __future__ import annotations

import math
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pydantic import ValidationError

from flexfl.control import FixedCompute, OnlineCompute, OnlineSend, SendAll
from flexfl.control.baselines import PeriodicSend, RandomisedCompute, RandomisedSend, TopKSend
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
from flexfl.spec import Spec, load_spec, parse, shipped, to_toml
from flexfl.spec.build import build_costs, build_policy, check_costs
from flexfl.streams import Moment, Streams

ALL = {"compute": 0.25, "uplink": 0.01, "downlink": 0.02}


def policy_of(**sections: Any) -> Any:
    spec = parse(sections)
    return build_policy(spec, build_costs(spec))


# Shipped -----------------------------------------------------------------------------------


def test_what_ships() -> None:
    assert set(shipped()) == {"quickstart", "fashion", "cifar10", "demo"}


@pytest.mark.parametrize("name", ["quickstart", "fashion", "cifar10"])
def test_a_shipped_spec_has_the_settings_of_the_paper(name: str) -> None:
    spec = load_spec(name)
    assert (spec.data.clients, spec.data.partition, spec.data.weights) == (100, "one-class", "equal")
    assert (spec.train.batch_size, spec.train.learning_rate, spec.train.evaluate_every) == (16, 0.1, 50)
    assert (spec.budget.compute, spec.budget.uplink, spec.budget.downlink) == (0.25, 0.01, 0.01)
    assert (spec.control.policy, spec.control.tradeoff, spec.control.initial_queue) == ("online", 0.02, 1.0)
    assert spec.control.floor == {"compute": 0.0, "uplink": 0.001, "downlink": 0.001}
    assert spec.costs.compute == {"kind": "uniform", "low": 0.0, "high": 1.0}
    assert spec.costs.uplink == {"kind": "fading", "per_message": 0.05, "factor": 1.0}
    assert spec.costs.downlink == {"kind": "fading", "per_message": 0.05, "factor": 0.2}


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


def test_the_costs_of_the_paper() -> None:
    """β = 0.05 and γ = 1/(d·log2(1 + ζ)) up, a fifth of both down, α ~ U(0, 1)."""
    costs = build_costs(load_spec("fashion"))
    drawn = {"alpha": np.array([0.25, 0.75]), "fading": np.array([0.5, 0.9])}
    moment = Moment(0, 1000, (2,), drawn.__getitem__)
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
    assert dict(spec.budget) == {"compute": None, "uplink": None, "downlink": None}


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
        ("control.policy=full", "control", "policy", "full"),
        ('control.policy="full"', "control", "policy", "full"),
        ("record.clients=true", "record", "clients", True),
        ("budget.uplink=inf", "budget", "uplink", math.inf),
        ("control.tradeoff.uplink=0.5", "control", "tradeoff", {"uplink": 0.5}),
        ("model.options.hidden=8", "model", "options", {"hidden": 8}),
        ("data.path=a=b.npz", "data", "path", "a=b.npz"),
        ("data.path=", "data", "path", ""),
    ],
)
def test_an_override(override: str, section: str, name: str, value: Any) -> None:
    spec = load_spec("quickstart", [override])
    assert getattr(getattr(spec, section), name) == value
    untouched = load_spec("quickstart").plain()
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
    assert stored["costs"]["uplink"] == {"kind": "fading", "per_message": 0.05, "factor": 1.0}
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
    ({"policy": {}}, OnlineCompute, OnlineSend, OnlineSend),
    ({"policy": {"uplink": "full"}}, OnlineCompute, SendAll, OnlineSend),
    (
        {"policy": {"compute": "randomised", "uplink": "periodic", "downlink": "top-k"}}
        | {"send_every": 2, "send_ratio": 0.5},
        RandomisedCompute,
        PeriodicSend,
        TopKSend,
    ),
]


@pytest.mark.parametrize(("control", "compute", "uplink", "downlink"), RULES)
def test_the_rules_of_a_policy(control: dict[str, Any], compute: type, uplink: type, downlink: type) -> None:
    policy = policy_of(data={"clients": 4}, budget=ALL, control=control)
    found = (type(policy.compute), type(policy.uplink), type(policy.downlink))
    assert found == (compute, uplink, downlink)


@pytest.mark.parametrize("knob", ["compute", "uplink", "downlink"])
def test_a_knob_without_budget_is_left_uncontrolled(knob: str) -> None:
    budget = {name: limit for name, limit in ALL.items() if name != knob}
    policy = policy_of(budget=budget)
    assert type(getattr(policy, knob)) is (FixedCompute if knob == "compute" else SendAll)
    assert set(policy.queues) == set(budget)


def test_the_settings_of_the_baselines_reach_their_rules() -> None:
    budget = {"compute": [0.1, 0.2], "uplink": 0.01, "downlink": 0.02}
    control = {"policy": "randomised", "send_ratio": {"uplink": [0.1, 0.2], "downlink": 0.5}}
    policy = policy_of(data={"clients": 2}, budget=budget, control=control)
    assert_array_equal(policy.compute.budget, [0.1, 0.2])
    assert policy.compute.mean_cost == 0.5
    assert_array_equal(policy.uplink.budget, [0.01, 0.01])
    assert_array_equal(policy.uplink.ratio, [0.1, 0.2])
    assert (policy.downlink.budget, policy.downlink.ratio) == (0.02, 0.5)
    assert policy.queues == {}

    fixed = policy_of(data={"clients": 2}, control={"policy": "fixed-prob", "compute_prob": [0.5, 1]})
    assert_array_equal(fixed.compute.prob, [0.5, 1])
    assert policy_of(control={"policy": "periodic", "send_every": 7}).uplink.every == 7
    assert policy_of(control={"policy": "top-k", "send_ratio": 0.25}).downlink.ratio == 0.25


def test_randomised_without_budgets_always_sends() -> None:
    policy = policy_of(control={"policy": "randomised", "send_ratio": 0.1})
    assert isinstance(policy.compute, FixedCompute)
    assert policy.uplink.budget == policy.downlink.budget == math.inf


def test_randomised_divides_a_shared_budget_evenly() -> None:
    shared = {"shared": [{"clients": [0, 3], "limit": 0.4}], "others": 0.1}
    control = {"policy": "randomised", "send_ratio": 0.1}
    policy = policy_of(data={"clients": 4}, budget={"compute": shared, "uplink": shared}, control=control)
    assert_array_equal(policy.compute.budget, [0.2, 0.1, 0.1, 0.2])
    assert_array_equal(policy.uplink.budget, [0.2, 0.1, 0.1, 0.2])


# V, W, floors and budgets ------------------------------------------------------------------


def test_one_number_reaches_all_knobs() -> None:
    control = {"tradeoff": 0.5, "initial_queue": 2.0, "floor": 0.25}
    policy = policy_of(data={"clients": 3}, budget=ALL, control=control)
    assert (policy.compute.tradeoff, policy.uplink.tradeoff, policy.downlink.tradeoff) == (0.5, 0.5, 0.5)
    for knob, shape in (("compute", (3,)), ("uplink", (3,)), ("downlink", ())):
        queue = policy.queues[knob]
        assert_array_equal(queue.length, np.full(shape, 2.0), strict=True)
        assert_array_equal(queue.floor, 0.25)
        assert_array_equal(queue.budget, np.full(shape, ALL[knob]), strict=True)


def test_settings_by_knob_and_by_client_reach_their_rules() -> None:
    control = {
        "tradeoff": {"compute": [0.1, 0.2, 0.3], "downlink": 0.7},
        "initial_queue": {"uplink": [1, 2, 3], "downlink": 5},
        "floor": {"uplink": 0.5},
    }
    policy = policy_of(data={"clients": 3}, budget=ALL, control=control)
    assert_array_equal(policy.compute.tradeoff, [0.1, 0.2, 0.3])
    assert policy.uplink.tradeoff == 0.02  # what a table leaves out keeps its default
    assert policy.downlink.tradeoff == 0.7
    queues = policy.queues
    assert_array_equal(queues["compute"].length, [1, 1, 1])
    assert_array_equal(queues["uplink"].length, [1, 2, 3])
    assert queues["downlink"].length == 5
    assert (queues["compute"].floor, queues["uplink"].floor, queues["downlink"].floor) == (0, 0.5, 0.001)


def test_budgets_by_client() -> None:
    policy = policy_of(data={"clients": 3}, budget={"compute": [0.1, math.inf, 0.3]})
    assert_array_equal(policy.compute.queue.budget, [0.1, math.inf, 0.3])
    assert_array_equal(policy.compute.queue.unlimited, [False, True, False])


def test_the_layout_of_shared_budgets() -> None:
    groups = [{"clients": "1-2", "limit": 0.6}, {"clients": [5, 0], "limit": 0.4}]
    spec = parse({"data": {"clients": 6}, "budget": {"uplink": {"shared": groups, "others": 0.1}}})
    layout = spec.budget.layout("uplink", (6,))
    assert layout is not None
    assert_array_equal(layout.members, [1, 0, 0, 2, 3, 1])
    assert_array_equal(layout.budget, [0.6, 0.4, 0.1, 0.1])
    assert spec.budget.layout("compute", (6,)) is None

    queue = build_policy(spec, build_costs(spec)).uplink.queue
    queue.charge(np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]))
    np.testing.assert_allclose(queue.length, [1 + 6 - 0.6, 1 + 33 - 0.4, 1 + 8 - 0.1, 1 + 16 - 0.1])
    np.testing.assert_allclose(queue.pressure, queue.length[[1, 0, 0, 2, 3, 1]])


def test_clients_outside_all_groups_have_no_limit_by_default() -> None:
    spec = parse({"data": {"clients": 3}, "budget": {"compute": {"shared": [{"clients": [1], "limit": 2}]}}})
    queue = build_policy(spec, build_costs(spec)).compute.queue
    assert_array_equal(queue.unlimited, [True, False, True])


@given(st.data())
def test_every_client_of_a_shared_budget_has_one_queue(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 12))
    owner = data.draw(st.lists(st.integers(-1, 3), min_size=clients, max_size=clients))
    owner[0] = 0  # at least one group
    groups = [[n for n in range(clients) if owner[n] == g] for g in range(4)]
    table = {"shared": [{"clients": g, "limit": 1.0 + i} for i, g in enumerate(groups) if g], "others": 9.0}
    layout = parse({"data": {"clients": clients}, "budget": {"uplink": table}}).budget.layout(
        "uplink", (clients,)
    )
    assert layout is not None
    assert layout.members is not None
    assert set(layout.members) == set(range(len(layout.budget)))
    for i, group in enumerate(groups):
        assert {layout.budget[layout.members[n]] for n in group} == ({1.0 + i} if group else set())
    alone = [n for n in range(clients) if owner[n] < 0]
    assert len({layout.members[n] for n in alone}) == len(alone)
    assert all(layout.budget[layout.members[n]] == 9.0 for n in alone)


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
    cost = build_costs(spec)["uplink"].at(Streams(1).moment("uplink", 0, 10, (2,)))
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

    given_spec = parse({"costs": {"uplink": {"kind": "given:__main__.Free", "repr": "Free()"}}})
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
    np.testing.assert_array_equal(model.prices, table["prices"])
    assert model.names == table["names"]
    check_costs({"compute": model}, clients=10, dim=5)
    longer = parse({"costs": {"compute": {**table, "prices": [1.0] * 4}}})
    with pytest.raises(InputError, match=r"must have parameters that fit .*three prices at most"):
        build_costs(longer)
