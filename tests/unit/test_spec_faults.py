"""Bad settings: one error that lists every fault with its field, rule, value and remedy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.control import POLICIES
from flexfl.errors import Fault, InputError
from flexfl.spec import load_spec, parse
from flexfl.spec.schema import Spec

NAN, INF = math.nan, math.inf


def faults_of(given: dict[str, Any]) -> tuple[Fault, ...]:
    with pytest.raises(InputError) as caught:
        parse(given)
    return caught.value.faults


def only_fault(given: dict[str, Any]) -> Fault:
    """The one fault of a spec; the message shows all four parts of it."""
    with pytest.raises(InputError) as caught:
        parse(given)
    assert len(caught.value.faults) == 1, str(caught.value)
    (fault,) = caught.value.faults
    message = str(caught.value)
    assert fault.rule
    assert fault.remedy, f"no remedy: {fault}"
    assert message.startswith("1 fault in the spec:\n")
    assert f"{fault.field} {fault.rule}, got " in message
    assert fault.remedy in message
    return fault


def shared(*groups: Any, **more: Any) -> dict[str, Any]:
    return {"budget": {"uplink": {"shared": list(groups), **more}}}


# One fault ---------------------------------------------------------------------------------

ABOVE_ZERO = [0, 0.0, -1, -0.25, NAN, -INF, True, None]
BUDGETS = [
    *((knob, value, value) for knob in ("compute", "uplink", "downlink") for value in ABOVE_ZERO),
    ("compute", [], []),
    ("uplink", [], []),
    ("downlink", [], []),
    ("compute", [0.1, 0.0], {1: 0.0}),
    ("uplink", [NAN, 0.1], {0: NAN}),
    ("uplink", [0.1, "x"], [0.1, "x"]),
    ("uplink", "0 MB", "0 MB"),
    ("downlink", "-3 kB / iteration", "-3 kB / iteration"),
]


@pytest.mark.parametrize(("knob", "value", "named"), BUDGETS)
def test_a_budget_is_above_zero(knob: str, value: Any, named: Any) -> None:
    fault = only_fault({"data": {"clients": 2}, "budget": {knob: value}})
    assert fault.field == f"budget.{knob}"
    assert "must be > 0" in fault.rule
    assert repr(fault.value) == repr(named)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("much", "must be a number with a unit"),
        ("5 furlongs", "has the unit furlongs, which is not known"),
        ("5 W", "must be in bytes, seconds, joules"),
        ("5 MB / kg", "has the unit kg"),
        ("5 MB / byte", "must be for an iteration or a time"),
        (["2 MB", "3 kB / month"], "must have one unit and one period for all clients"),
        (["2 MB", "3 kJ"], "must have one unit and one period for all clients"),
        ({"shared": [{"clients": [0], "limit": "2 MB"}], "others": 3}, "for all groups"),
        ({"shared": [{"clients": [0], "limit": "2 MB"}, {"clients": [1], "limit": "3 s"}]}, "for all groups"),
    ],
)
def test_a_budget_in_units(value: Any, rule: str) -> None:
    fault = only_fault({"data": {"clients": 2}, "budget": {"uplink": value}})
    assert fault.field == "budget.uplink"
    assert rule in fault.rule


def test_amounts_stay_as_they_are_written() -> None:
    given = {
        "uplink": ["2 MB", "500 kB"],
        "compute": "30 s / hour",
        "downlink": "2 kB / iteration",
        "hard": True,
    }
    found = parse({"data": {"clients": 2}, "budget": given}).plain()["budget"]
    assert found == given


@pytest.mark.parametrize("value", [10**400, [10**400, 0.1]])
def test_a_budget_that_no_float_can_hold_is_no_limit(value: Any) -> None:
    found = parse({"data": {"clients": 2}, "budget": {"compute": value}}).budget.compute
    assert np.atleast_1d(found)[0] == INF


def test_a_budget_of_zero_reads_as_promised() -> None:
    with pytest.raises(InputError) as caught:
        load_spec("quickstart", ["budget.uplink=0"])
    assert str(caught.value) == (
        "1 fault in the spec quickstart:\n  budget.uplink must be > 0, got 0; leave it out for no limit"
    )


def test_a_list_names_the_client_that_is_wrong() -> None:
    fault = only_fault({"data": {"clients": 4}, "budget": {"compute": [0.1, 0.0, 0.2, -3.0]}})
    assert fault.rule == "must be > 0 for each client"
    assert fault.value == {1: 0.0, 3: -3.0}


@pytest.mark.parametrize("length", [1, 4, 6])
@pytest.mark.parametrize(
    ("section", "table", "field"),
    [
        ("budget", lambda values: {"compute": values}, "budget.compute"),
        ("budget", lambda values: {"uplink": values}, "budget.uplink"),
        ("control", lambda values: {"tradeoff": {"uplink": values}}, "control.tradeoff.uplink"),
        ("control", lambda values: {"initial_queue": {"compute": values}}, "control.initial_queue.compute"),
        ("control", lambda values: {"floor": {"uplink": values}}, "control.floor.uplink"),
        (
            "control",
            lambda values: {"policy": "fixed-prob", "compute_prob": values},
            "control.compute_prob",
        ),
        (
            "control",
            lambda values: {"policy": "top-k", "send_ratio": {"uplink": values, "downlink": 0.1}},
            "control.send_ratio.uplink",
        ),
        (
            "control",
            lambda values: {"uplink": {"policy": "online", "tradeoff": {"uplink": values}}},
            "control.uplink.tradeoff.uplink",
        ),
        ("costs", lambda values: {"uplink": {"per_message": values}}, "costs.uplink.per_message"),
        ("costs", lambda values: {"compute": {"high": values}}, "costs.compute.high"),
    ],
)
def test_a_list_has_one_number_for_each_client(section: str, table: Any, field: str, length: int) -> None:
    fault = only_fault({"data": {"clients": 5}, section: table([0.5] * length)})
    assert fault.field == field
    assert fault.rule == "must have one number for each of the 5 clients"
    assert fault.value == length


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"budget": {"downlink": [0.1, 0.1]}}, "budget.downlink"),
        ({"budget": {"downlink": {"shared": [{"clients": [0], "limit": 0.1}]}}}, "budget.downlink"),
        ({"control": {"tradeoff": {"downlink": [0.1, 0.1]}}}, "control.tradeoff.downlink"),
        (
            {"control": {"downlink": {"policy": "online", "floor": {"downlink": [0, 0]}}}},
            "control.downlink.floor.downlink",
        ),
        ({"costs": {"downlink": {"factor": [0.1, 0.1]}}}, "costs.downlink.factor"),
    ],
)
def test_there_is_one_server(given: dict[str, Any], field: str) -> None:
    """Also when the section [data] has a fault of its own."""
    fault = only_fault({"data": {"clients": 2}, **given})
    assert fault.field == field
    assert fault.rule == "must be one number: there is one server"
    found = faults_of({"data": {"clients": 0}, **given})
    assert {fault.field for fault in found} == {"data.clients", field}


CONTROL = [
    *(("tradeoff", value, "must be > 0") for value in [0, 0.0, -0.02, NAN, INF, -INF, "V", True, None]),
    *(("initial_queue", value, "must be ≥ 0") for value in [-1, -1e-9, NAN, INF, "W", False]),
    *(("floor", value, "must be ≥ 0") for value in [-0.001, NAN, INF, "low"]),
    *(("compute_prob", value, "must be in (0, 1]") for value in [0, -0.5, 1.0001, 2, NAN, INF, "half"]),
    *(("send_ratio", value, "must be in (0, 1]") for value in [0, -0.1, 1.5, NAN, INF, "1 %"]),
    *(("send_every", value, "must be a whole number ≥ 1") for value in [0, -2, 2.5, "2", True]),
]


POLICY_OF = {"compute_prob": "fixed-prob", "send_ratio": "top-k", "send_every": "periodic"}


def control(name: str, value: Any) -> dict[str, Any]:
    """The section with a policy that has this setting."""
    return {"control": {"policy": POLICY_OF.get(name, "online"), name: value}}


@pytest.mark.parametrize(("name", "value", "rule"), CONTROL)
def test_a_control_setting_out_of_range(name: str, value: Any, rule: str) -> None:
    fault = only_fault(control(name, value))
    assert fault.field == f"control.{name}"
    assert fault.rule == rule
    assert repr(fault.value) == repr(value)


@pytest.mark.parametrize("name", ["tradeoff", "initial_queue", "floor", "send_ratio"])
def test_a_control_setting_by_knob_names_the_knob(name: str) -> None:
    fault = only_fault(control(name, {"uplink": -1.0, "downlink": 0.1}))
    assert fault.field == f"control.{name}"
    assert "(uplink)" in fault.rule
    assert fault.value == -1.0


@pytest.mark.parametrize("name", ["tradeoff", "initial_queue", "floor", "send_ratio"])
def test_a_list_for_all_knobs_is_ambiguous(name: str) -> None:
    fault = only_fault({"data": {"clients": 2}, **control(name, [0.1, 0.1])})
    assert fault.field == f"control.{name}"
    assert "under compute or uplink" in fault.remedy


@pytest.mark.parametrize("name", ["tradeoff", "initial_queue", "floor", "send_ratio"])
def test_a_table_by_knob_has_knobs_only(name: str) -> None:
    fault = only_fault(control(name, {"upload": 0.1}))
    assert fault.field == f"control.{name}"
    assert fault.rule == "takes a table by compute, uplink and downlink"
    assert fault.value == "upload"


TRAIN = [
    *(("iterations", value) for value in [0, -1, 2.0, "many", True, None]),
    *(("batch_size", value) for value in [0, -16, 16.0]),
    *(("seed", value) for value in [-1, 1.5, "one"]),
    *(("evaluate_every", value) for value in [0, 0.5]),
]


@pytest.mark.parametrize(("name", "value"), TRAIN)
def test_whole_numbers(name: str, value: Any) -> None:
    fault = only_fault({"train": {name: value}})
    assert fault.field == f"train.{name}"
    assert fault.rule == f"must be a whole number ≥ {0 if name == 'seed' else 1}"
    assert repr(fault.value) == repr(value)


@pytest.mark.parametrize("value", [0, -0.1, NAN, INF, "fast", None, pytest.param(10**400, id="10^400")])
def test_learning_rate(value: Any) -> None:
    fault = only_fault({"train": {"learning_rate": value}})
    assert fault.field == "train.learning_rate"
    assert fault.rule == "must be > 0 and finite"


def test_a_seed_that_no_stream_can_be_keyed_with() -> None:
    """Philox has a key of 64 bits for the seed."""
    fault = only_fault({"train": {"seed": 2**64}})
    assert fault.field == "train.seed"


@pytest.mark.parametrize("clients", [0, -3, 1.5, "100"])
def test_clients(clients: Any) -> None:
    fault = only_fault({"data": {"clients": clients}})
    assert fault.field == "data.clients"
    assert fault.rule == "must be a whole number ≥ 1"
    assert fault.value == clients


@pytest.mark.parametrize(
    "weights", [[0.5, 0.25], [1.0, 1.0], [1.5, -0.5], [0.0, 0.0], [NAN, 1.0], [INF, 0.0]], ids=str
)
def test_weights_sum_to_one(weights: list[float]) -> None:
    fault = only_fault({"data": {"clients": 2, "weights": weights}})
    assert fault.field == "data.weights"
    assert fault.rule == "must be ≥ 0 and sum to 1"
    assert "sum" in fault.remedy


@pytest.mark.parametrize("weights", ["equals", ["a", 0.5], 5, []])
def test_weights_of_another_kind(weights: Any) -> None:
    found = faults_of({"data": {"clients": 2, "weights": weights}})
    assert all(fault.field.startswith("data.weights") for fault in found)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"data": {"augment": "mirror"}}, "data.augment", "mirror"),
        ({"engine": {"dtype": "float16"}}, "engine.dtype", "float16"),
        ({"engine": {"device": "gpu"}}, "engine.device", "gpu"),
        ({"engine": {"device": "cuda:x"}}, "engine.device", "cuda:x"),
        ({"engine": {"kernels": "c"}}, "engine.kernels", "c"),
        ({"engine": {"kernels": "numba", "device": "cuda"}}, "engine.kernels", "numba"),
        ({"engine": {"residuals": "disk"}}, "engine.residuals", "disk"),
        ({"engine": {"residuals": "file", "device": "mps"}}, "engine.residuals", "file"),
        ({"engine": {"residuals": "file", "kernels": "torch"}}, "engine.residuals", "file"),
        ({"engine": {"gradients": "fast"}}, "engine.gradients", "fast"),
        ({"engine": {"threads": 0}}, "engine.threads", 0),
        ({"engine": {"checkpoint_every": 0}}, "engine.checkpoint_every", 0),
    ],
)
def test_choices(given: dict[str, Any], field: str, value: Any) -> None:
    fault = only_fault(given)
    assert (fault.field, fault.value) == (field, value)
    assert fault.rule.startswith("must be")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"data": {"name": 3}}, "data.name"),
        ({"model": {"name": 3}}, "model.name"),
        ({"model": {"options": 5}}, "model.options"),
        ({"record": {"clients": 1}}, "record.clients"),
    ],
)
def test_values_of_another_type(given: dict[str, Any], field: str) -> None:
    fault = only_fault(given)
    assert fault.field == field
    assert fault.rule in {"must be text in quotes", "must be a table", "must be true or false"}


# Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field", "near"),
    [
        ({"trian": {"iterations": 5}}, "trian", "train"),
        ({"budgets": {}}, "budgets", "budget"),
        ({"train": {"iteratons": 5}}, "train.iteratons", "iterations"),
        ({"budget": {"uplnk": 5}}, "budget.uplnk", "uplink"),
        ({"control": {"trade_off": 5}}, "control.trade_off", "tradeoff"),
        ({"costs": {"downlnk": {}}}, "costs.downlnk", "downlink"),
        ({"data": {"client": 5}}, "data.client", "clients"),
        ({"engine": {"thread": 5}}, "engine.thread", "threads"),
        ({"compress": {"uplnk": "top-k"}}, "compress.uplnk", "uplink"),
        ({"compress": {"uplink": "top_k"}}, "compress.uplink", "top-k"),
        (
            {"compress": {"uplink": {"kind": "rounded", "value": "float16"}}},
            "compress.uplink.value",
            "values",
        ),
        ({"track": {"mine": "cvs"}}, "track.mine", "csv"),
        ({"track": {"mine": {"kind": "csv", "paht": "x"}}}, "track.mine.paht", "path"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_nearest(given: dict[str, Any], field: str, near: str) -> None:
    fault = only_fault(given)
    assert fault.field == field
    assert fault.remedy == f"did you mean {near}?"


def test_an_unlike_name_is_answered_with_all_of_them() -> None:
    fault = only_fault({"zzz": {}})
    assert fault.rule == "is not a section of a spec"
    assert all(name in fault.remedy for name in Spec.model_fields)


@given(name=st.text(min_size=1).filter(lambda name: name not in Spec.model_fields))
def test_no_other_section_is_taken(name: str) -> None:
    assert only_fault({name: {}}).field == name


@pytest.mark.parametrize("content", [5, "x", [1], None])
def test_a_section_is_a_table(content: Any) -> None:
    fault = only_fault({"train": content})
    assert (fault.field, fault.rule, fault.value) == ("train", "must be a table", content)


@pytest.mark.parametrize("policy", ["onlin", "", 5, ["online"]])
@pytest.mark.parametrize("knob", ["", "compute", "uplink", "downlink"])
def test_an_unknown_policy(policy: Any, knob: str) -> None:
    table = {"policy": policy}
    fault = only_fault({"control": {knob: table} if knob else table})
    assert fault.field == f"control.{knob}.policy".replace("..", ".")
    assert all(name in fault.rule for name in POLICIES.members)


def test_a_policy_is_one_name() -> None:
    fault = only_fault({"control": {"policy": {"uplink": "full"}}})
    assert fault.field == "control.policy"
    assert "control.uplink = { policy" in fault.remedy


@pytest.mark.parametrize("table", [{}, {"tradeoff": 0.1}, 5, ["full"]])
def test_a_policy_of_one_knob_that_is_not_named(table: Any) -> None:
    fault = only_fault({"control": {"uplink": table}})
    assert fault.field.startswith("control.uplink")
    assert "online" in fault.rule + fault.remedy


def test_a_parameter_of_another_policy() -> None:
    fault = only_fault({"control": {"send_ratio": 0.1}})
    assert (fault.field, fault.rule) == ("control.send_ratio", "is not a parameter of online")
    assert fault.remedy == "it is one of randomised, sampled, paced, top-k"


def test_values_are_rounded_by_a_compressor() -> None:
    for value in ("exact", "float16", 3):
        fault = only_fault({"deploy": {"values": value}})
        assert (fault.field, fault.rule) == ("deploy.values", "is not a key here")
        assert 'compress.uplink = { kind = "rounded", values = "float16" }' in fault.remedy


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"compress": {"uplink": 5}}, "compress.uplink"),
        ({"compress": {"uplink": {}}, "track": {"a": {}}}, "track.a.kind"),
        ({"compress": {"downlink": {"kind": "rounded", "values": "float8"}}}, "compress.downlink.values"),
        ({"track": {"a": 5}}, "track.a"),
        ({"track": {"a": {"kind": "csv", "path": 5}}}, "track.a.path"),
    ],
)
def test_compressors_and_trackers(given: dict[str, Any], field: str) -> None:
    assert only_fault(given).field == field


@pytest.mark.parametrize(
    ("control", "needed"),
    [
        ({"policy": "randomised"}, "send_ratio"),
        ({"policy": "top-k"}, "send_ratio"),
        ({"downlink": {"policy": "top-k"}}, "downlink.send_ratio"),
        ({"uplink": "randomised"}, "uplink.send_ratio"),
        ({"uplink": {"policy": "top-k", "send_ratio": {"downlink": 0.1}}}, "uplink.send_ratio"),
        ({"policy": "top-k", "send_ratio": {"uplink": 0.1}}, "send_ratio"),
        ({"policy": "randomised", "send_ratio": {"downlink": 0.1}}, "send_ratio"),
        ({"policy": "top-k", "send_ratio": {}}, "send_ratio"),
        ({"policy": "periodic"}, "send_every"),
        ({"uplink": {"policy": "periodic"}}, "uplink.send_every"),
        ({"policy": "fixed-prob"}, "compute_prob"),
        ({"compute": {"policy": "fixed-prob"}}, "compute.compute_prob"),
    ],
    ids=str,
)
def test_a_policy_that_needs_a_setting(control: dict[str, Any], needed: str) -> None:
    fault = only_fault({"control": control})
    assert fault.field == f"control.{needed}"
    assert "is needed by" in fault.rule


def test_a_table_by_knob_needs_no_knob_that_is_not_used() -> None:
    ratio = {"uplink": 0.1}
    parse({"control": {"policy": "top-k", "send_ratio": ratio, "downlink": {"policy": "full"}}})
    parse({"control": {"uplink": {"policy": "top-k", "send_ratio": ratio}}})


# Shared budgets ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "rule", "value"),
    [
        (
            shared({"clients": [0, 1], "limit": 1}, {"clients": "1-2", "limit": 1}),
            "may name a client in one group only",
            1,
        ),
        (shared({"clients": [3, 3], "limit": 1}), "may name a client in one group only", 3),
        (shared({"clients": "0-5", "limit": 1}), "may name clients from 0 to 4", 5),
        (shared({"clients": [7], "limit": 1}), "may name clients from 0 to 4", 7),
        (shared({"clients": "0:3", "limit": 1}), "must name clients as a list or a range", "0:3"),
        (shared({"clients": "all", "limit": 1}), "must name clients as a list or a range", "all"),
        (shared({"clients": "-1-3", "limit": 1}), "must name clients as a list or a range", "-1-3"),
        (shared({"clients": [], "limit": 1}), "must name clients by whole numbers from 0", []),
        (shared({"clients": [-1], "limit": 1}), "must name clients by whole numbers from 0", [-1]),
        (shared({"clients": [1.0], "limit": 1}), "must name clients by whole numbers from 0", [1.0]),
        (shared({"clients": [True], "limit": 1}), "must name clients by whole numbers from 0", [True]),
        (shared({"clients": 3, "limit": 1}), "must name clients by whole numbers from 0", 3),
        (shared({"clients": [0]}), "needs clients and limit in each group", ["clients"]),
        (shared({"limit": 1}), "needs clients and limit in each group", ["limit"]),
        (
            shared({"clients": [0], "limit": 1, "name": "a"}),
            "needs clients and limit in each group",
            ["clients", "limit", "name"],
        ),
        (shared({"clients": [0], "limit": 0}), "must be > 0 (limit)", 0),
        (shared({"clients": [0], "limit": NAN}), "must be > 0 (limit)", NAN),
        (shared({"clients": [0], "limit": [1]}), "must be > 0 (limit)", [1]),
        (shared({"clients": [0], "limit": 1}, others=-1), "must be > 0 (others)", -1),
        (shared(), "must list groups under shared", []),
        ({"budget": {"uplink": {}}}, "must list groups under shared", None),
        ({"budget": {"uplink": {"others": 1.0}}}, "must list groups under shared", None),
        ({"budget": {"uplink": {"shared": "0-4"}}}, "must list groups under shared", "0-4"),
        ({"budget": {"uplink": {"shared": [1]}}}, "must list groups under shared", [1]),
        (shared({"clients": [0], "limit": 1}, other=1), "takes the keys shared and others", "other"),
    ],
)
def test_a_shared_budget_that_makes_no_sense(given: dict[str, Any], rule: str, value: Any) -> None:
    fault = only_fault({"data": {"clients": 5}, **given})
    assert (fault.field, fault.rule) == ("budget.uplink", rule)
    assert repr(fault.value) == repr(value)


def test_a_range_that_runs_backwards_is_shown_as_it_was_given() -> None:
    assert only_fault(shared({"clients": "9-0", "limit": 1})).value == "9-0"


@pytest.mark.parametrize("name", ["initial_queue", "floor"])
def test_a_shared_queue_has_one_length(name: str) -> None:
    given = {
        "data": {"clients": 2},
        **shared({"clients": [0, 1], "limit": 1}),
        "control": {name: {"uplink": [0.1, 0.2]}},
    }
    fault = only_fault(given)
    assert fault.field == f"control.{name}.uplink"
    assert "shared" in fault.rule


# Costs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "table", "rule", "value"),
    [
        ("compute.kind", {"kind": "fading"}, "must be one of uniform, constant, measured, device", "fading"),
        ("uplink.kind", {"kind": "uniform"}, "must be one of fading, constant, packets", "uniform"),
        ("uplink.kind", {"kind": "fadng"}, "must be one of", "fadng"),
        ("uplink.kind", {"kind": 5}, "must be one of", 5),
        ("uplink.kind", {"kind": ["fading"]}, "must be one of", ["fading"]),
        ("downlink.kind", {"kind": "mod:"}, "must be one of", "mod:"),
        ("uplink", 0.5, "must be one of fading, constant, packets, measured, bytes", 0.5),
        ("uplink.per_mesage", {"per_mesage": 1.0}, "is not a parameter of fading", 1.0),
        ("compute.per_gradient", {"per_gradient": 1.0}, "is not a parameter of uniform", 1.0),
        ("uplink.per_message", {"per_message": -0.1}, "must be ≥ 0 and finite", -0.1),
        ("uplink.per_message", {"per_message": NAN}, "must be ≥ 0 and finite", NAN),
        ("uplink.per_message", {"per_message": INF}, "must be ≥ 0 and finite", INF),
        ("downlink.factor", {"factor": 0.0}, "must be > 0 and finite", 0.0),
        ("uplink.factor", {"factor": "big"}, "must be > 0 and finite", "big"),
        ("uplink.whole_model", {"kind": "constant", "whole_model": -1}, "must be ≥ 0 and finite", -1),
        ("uplink.per_packet", {"kind": "packets", "per_packet": [-1, 0]}, "must be ≥ 0", {0: -1}),
        (
            "uplink.components_per_packet",
            {"kind": "packets", "components_per_packet": 0},
            "must be > 0 and finite",
            0,
        ),
        ("uplink.smoothing", {"kind": "measured", "smoothing": 1.5}, "must be in (0, 1]", 1.5),
        ("compute.low", {"low": -0.5}, "must be ≥ 0 and finite", -0.5),
        (
            "compute",
            {"low": 2.0},
            "must have parameters that fit uniform",
            {"low": 2.0, "high": 1.0, "unit": ""},
        ),
        (
            "compute",
            {"low": [0.0, 3.0], "high": 1.0},
            "must have parameters that fit uniform",
            {"low": [0.0, 3.0], "high": 1.0, "unit": ""},
        ),
    ],
)
def test_costs(field: str, table: Any, rule: str, value: Any) -> None:
    fault = only_fault({"data": {"clients": 2}, "costs": {field.partition(".")[0]: table}})
    assert fault.field == f"costs.{field}"
    assert fault.rule.startswith(rule)
    assert repr(fault.value) == repr(value)


def test_a_misspelt_cost_is_answered_with_the_nearest() -> None:
    assert only_fault({"costs": {"uplink": {"kind": "fadng"}}}).remedy == "did you mean fading?"
    assert only_fault({"costs": {"uplink": {"factr": 1}}}).remedy == "did you mean factor?"


def test_bounds_of_different_length_are_told_in_our_words() -> None:
    found = faults_of({"data": {"clients": 2}, "costs": {"compute": {"low": [0, 0], "high": [1, 1, 1]}}})
    assert all(fault.field.startswith("costs.compute") for fault in found)
    assert not any("broadcast" in fault.rule for fault in found)


# Partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "field", "rule", "value", "remedy"),
    [
        ("one-clas", "", "must be one of one-class, iid, dirichlet", "one-clas", "did you mean one-class?"),
        (5, "", "must be one of one-class, iid, dirichlet", 5, "one-class"),
        (["iid"], "", "must be one of one-class, iid, dirichlet", ["iid"], "one-class"),
        ("dirichlet", ".alpha", "is needed by dirichlet", None, 'kind = "dirichlet", alpha = 0.3'),
        ("similarity", ".similarity", "is needed by similarity", None, "similarity = 0.1"),
        ({}, ".kind", "is needed", None, "one of one-class"),
        ({"alpha": 0.3}, ".kind", "is needed", None, "add kind"),
        ({"kind": "dirichelt"}, ".kind", "must be one of", "dirichelt", "did you mean dirichlet?"),
        ({"kind": ["iid"]}, ".kind", "must be one of", ["iid"], "did you mean iid?"),
        ({"kind": "given:a"}, "", "must have a kind that can be named", {"kind": "given:a"}, "known: "),
        ({"kind": "iid", "alpha": 1}, ".alpha", "is not a parameter of iid", 1, "one of dirichlet"),
        ({"kind": "iid", "beta": 1}, ".beta", "is not a parameter of iid", 1, "remove it"),
        (
            {"kind": "quantity", "size": "linear"},
            ".size",
            "is not a parameter",
            "linear",
            "did you mean sizes?",
        ),
        ({"kind": "quantity", "sizes": "lineal"}, ".sizes", "must be one of linear", "lineal", "linear?"),
        ({"kind": "quantity", "sizes": 3}, ".sizes", "must be one of linear", 3, "one for each client"),
        ({"kind": "quantity", "sizes": []}, ".sizes", "must be one of linear", [], "one for each client"),
        ({"kind": "quantity", "sizes": [1, 0]}, ".sizes", "must be > 0", {1: 0}, "proportion"),
        ({"kind": "quantity", "sizes": [1, NAN]}, ".sizes", "must be > 0", {1: NAN}, "proportion"),
        ({"kind": "quantity", "sizes": [1, 2, 3]}, ".sizes", "must have one number for each", 3, "adjust"),
        ({"kind": "similarity", "similarity": 1.5}, ".similarity", "must be in [0, 1]", 1.5, "iid"),
        ({"kind": "similarity", "similarity": True}, ".similarity", "must be in [0, 1]", True, "iid"),
    ],
)
def test_partitions(partition: Any, field: str, rule: str, value: Any, remedy: str) -> None:
    fault = only_fault({"data": {"clients": 2, "partition": partition}})
    assert fault.field == f"data.partition{field}"
    assert fault.rule.startswith(rule)
    assert repr(fault.value) == repr(value)
    assert remedy in fault.remedy


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        ("dirichlet", "alpha", [0, -0.3, NAN, INF, 1e10, "small", True, [0.3]]),
        ("dirichlet", "min_partition_size", [0, -1, 2.5, "ten", True, 2**60]),
        ("dirichlet", "self_balancing", [1, "yes", 0.0]),
        ("shards", "num_classes_per_partition", [0, 1.0, "two", False]),
    ],
)
def test_options_of_partitions(kind: str, name: str, wrong: list[Any]) -> None:
    for value in wrong:
        table = {"kind": kind, "alpha": 0.3} if kind == "dirichlet" else {"kind": kind}
        fault = only_fault({"data": {"partition": table | {name: value}}})
        assert fault.field == f"data.partition.{name}"
        assert repr(fault.value) == repr(value)


def test_faults_of_a_partition_are_listed_with_the_others() -> None:
    table = {"kind": "dirichlet", "aplha": 0.3, "min_partition_size": 0}
    found = {fault.field: fault for fault in faults_of({"data": {"clients": 0, "partition": table}})}
    fields = ("alpha", "aplha", "min_partition_size")
    assert set(found) == {"data.clients", *(f"data.partition.{name}" for name in fields)}
    assert found["data.partition.aplha"].remedy == "did you mean alpha?"


# Files and overrides -----------------------------------------------------------------------


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text("[train\niterations = 5\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1, column 7 must be TOML \(Expected .* got '\[train'"):
        load_spec(str(path))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x80\x81"])
def test_a_file_that_is_not_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_spec(str(path))
    assert caught.value.faults[0].value == str(path)


def test_a_missing_file() -> None:
    with pytest.raises(InputError) as caught:
        load_spec("quickstrat")
    (fault,) = caught.value.faults
    assert (fault.field, fault.value) == ("SPEC", "quickstrat")
    assert "did you mean quickstart?" in fault.remedy
    assert "No such file" in fault.remedy


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a spec that ships or a TOML file"):
        load_spec(str(tmp_path))


def test_malformed_overrides_are_all_listed() -> None:
    wrong = ["train", "x=1", "train.=3", ".seed=3", "train.iterations", "", "=", "train..seed=1"]
    with pytest.raises(InputError) as caught:
        load_spec("quickstart", [*wrong, "train.seed=3"])
    assert [fault.value for fault in caught.value.faults] == wrong
    assert {fault.field for fault in caught.value.faults} == {"--set"}
    assert {fault.rule for fault in caught.value.faults} == {"must read section.key=value"}
    assert all("--set train.iterations=500" in fault.remedy for fault in caught.value.faults)


def test_an_override_is_checked_like_the_file() -> None:
    overrides = ["train.iterations=many", "budget.uplink=[0.1, 0.2]", "contrl.policy=online"]
    with pytest.raises(InputError) as caught:
        load_spec("quickstart", overrides)
    by_field = {fault.field: fault for fault in caught.value.faults}
    assert set(by_field) == {"train.iterations", "budget.uplink", "contrl"}
    assert by_field["train.iterations"].value == "many"
    assert by_field["budget.uplink"].value == 2
    assert by_field["contrl"].remedy == "did you mean control?"


# All at once -------------------------------------------------------------------------------


def test_faults_of_all_sections_are_listed_at_once() -> None:
    given = {
        "data": {"clients": 4, "weights": [0.5, 0.5]},
        "model": {"nme": "mlp"},
        "train": {"iterations": 0, "learning_rate": NAN},
        "budget": {"compute": -1, "uplink": 0},
        "control": {"tradeoff": INF, "uplink": {"policy": "onlin"}},
        "costs": {"uplink": {"kind": "wifi"}},
        "record": {"clients": "yes"},
        "engine": {"dtype": "float16"},
        "extra": {},
    }
    with pytest.raises(InputError) as caught:
        parse(given, where="the settings")
    assert sorted(fault.field for fault in caught.value.faults) == [
        "budget.compute",
        "budget.uplink",
        "control.tradeoff",
        "control.uplink.policy",
        "costs.uplink.kind",
        "data.weights",
        "engine.dtype",
        "extra",
        "model.nme",
        "record.clients",
        "train.iterations",
        "train.learning_rate",
    ]
    lines = str(caught.value).splitlines()
    assert lines[0] == "12 faults in the settings:"
    assert len(lines) == 13


def test_faults_between_sections_are_listed_with_the_others() -> None:
    given = {
        "data": {"clients": 3, "weights": [0.2, 0.2, 0.2]},
        "budget": {"compute": [0.1], "uplink": {"shared": [{"clients": "0-3", "limit": 1}]}},
        "control": {"policy": "top-k"},
        "train": {"seed": -1},
    }
    assert sorted(fault.field for fault in faults_of(given)) == [
        "budget.compute",
        "budget.uplink",
        "control.send_ratio",
        "data.weights",
        "train.seed",
    ]


FIELDS = {
    ("train", "iterations"): st.integers(max_value=0),
    ("train", "learning_rate"): st.floats(max_value=0),
    ("data", "clients"): st.integers(max_value=0),
    ("budget", "compute"): st.floats(max_value=0),
    ("budget", "uplink"): st.floats(max_value=0),
    ("budget", "downlink"): st.floats(max_value=0),
    ("control", "tradeoff"): st.floats(max_value=0),
    ("control", "initial_queue"): st.floats(max_value=-1e-300),
    ("costs", "uplink.per_message"): st.floats(max_value=-1e-300),
    ("costs", "compute.high"): st.floats(max_value=0),
    ("engine", "threads"): st.integers(max_value=0),
}


@given(st.fixed_dictionaries({}, optional=FIELDS).filter(bool))
def test_any_set_of_faults_is_listed_whole(wrong: dict[tuple[str, str], Any]) -> None:
    tables: dict[str, dict[str, Any]] = {}
    for (section, name), value in wrong.items():
        table, key = tables.setdefault(section, {}), name
        if "." in name:
            below, key = name.split(".")
            table = table.setdefault(below, {})
        table[key] = value
    found = {(fault.field, repr(fault.value)) for fault in faults_of(tables)}
    assert found == {(f"{section}.{name}", repr(value)) for (section, name), value in wrong.items()}


def test_a_long_value_is_shortened_in_the_message() -> None:
    line = str(only_fault({"train": {"iterations": "x" * 5000}}))
    assert len(line) < 200
    assert "…" in line
