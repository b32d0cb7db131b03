"""Costs in bytes, seconds, joules, carbon and money: each formula by hand, units, and what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from flexfl.costs import (
    COMPUTE_COSTS,
    MESSAGE_COSTS,
    AvailableCompute,
    AvailableMessage,
    Bandwidth,
    ByteMessage,
    CarbonCompute,
    CarbonMessage,
    ConstantCompute,
    ConstantMessage,
    DeviceCompute,
    DeviceMessage,
    EnergyCompute,
    EnergyMessage,
    GaussMarkov,
    MoneyCompute,
    MoneyMessage,
    PacketMessage,
)
from flexfl.costs.available import with_away
from flexfl.costs.devices import CLASSES
from flexfl.costs.energy import RADIOS
from flexfl.costs.factors import price_of
from flexfl.costs.linear import Affine, Linear
from flexfl.costs.parts import scaled
from flexfl.errors import InputError
from flexfl.streams import Entities, Streams


def moment(t=0, clients=4, role="uplink", seed=1):
    entities = Entities.the_server() if role == "downlink" else Entities.all_clients(clients)
    return Streams(seed).moment(role, t, 100, entities)


def cost_of(model, k, t=0, **more):
    return np.broadcast_to(model.at(moment(t, **more))(k), moment(t, **more).shape).tolist()


# Bytes and seconds -----------------------------------------------------------------------------


def test_bytes():
    assert cost_of(ByteMessage(), 10) == [94 + 50] * 4
    assert cost_of(ByteMessage(), 0) == [0] * 4
    assert cost_of(ByteMessage([1, 2, 3, 4], 7), 10) == [17, 27, 37, 47]


def test_seconds_at_a_bandwidth():
    link = Bandwidth(rate=2e6, latency=0.1, bytes_per_component=4, bytes_per_message=50)
    assert cost_of(link, 1000) == pytest.approx([0.1 + 8 * 4050 / 2e6] * 4)
    assert cost_of(link, 0) == [0] * 4


def test_seconds_at_a_bandwidth_over_time():
    link = Bandwidth(trace=[4.0, 0.5], bytes_per_component=4, bytes_per_message=0)
    assert cost_of(link, 1000, t=0) == pytest.approx([8 * 4000 / 4e6] * 4)
    assert cost_of(link, 1000, t=1) == pytest.approx([8 * 4000 / 0.5e6] * 4)
    in_kilobits = Bandwidth(rate=1e3, trace=[4000.0, 500.0], bytes_per_component=4, bytes_per_message=0)
    assert cost_of(in_kilobits, 1000, t=1) == pytest.approx(cost_of(link, 1000, t=1))
    slow_to_start = Bandwidth(trace=[4.0], latency=[0.0, 0.1, 0.2, 0.3], bytes_per_component=4)
    assert cost_of(slow_to_start, 1000) == pytest.approx([0.008188 + 0.1 * n for n in range(4)])


def test_no_bandwidth_is_an_outage():
    link = Bandwidth(trace=[2.0, 0.0])
    assert cost_of(link, 1, t=1) == [np.inf] * 4
    assert cost_of(link, 0, t=1) == [0.0] * 4
    assert np.isfinite(link.at(moment(1)).present(1)).all()


# Energy, carbon, money -------------------------------------------------------------------------


def test_joules_of_computing():
    model = EnergyCompute(power=[1.0, 2.0, 3.0, 4.0], seconds=0.5)
    assert cost_of(model, 1.0, role="compute") == [0.5, 1.0, 1.5, 2.0]
    assert model.mean_cost.tolist() == [0.5, 1.0, 1.5, 2.0]


def test_joules_of_a_radio_are_those_of_the_paper():
    """By hand from Huang et al. 2012: 438.39 mW/Mbps · 5.64 Mbps + 1288.04 mW, for the time it takes."""
    watts, seconds = 0.43839 * 5.64 + 1.28804, 8 * (94 + 5 * 1000) / 5.64e6
    assert cost_of(EnergyMessage(tail=False), 1000) == pytest.approx([watts * seconds + 0.31490307] * 4)
    assert cost_of(EnergyMessage(), 1000) == pytest.approx([watts * seconds + 0.31490307 + 12.27056] * 4)
    receiving = (0.05197 * 12.74 + 1.28804) * 8 * (94 + 5 * 1000) / 12.74e6 + 0.31490307
    assert cost_of(EnergyMessage(tail=False), 1000, role="downlink") == pytest.approx(receiving)


def test_own_figures_replace_those_of_the_technology():
    own = EnergyMessage(per_bit=1e-6, wake=2.0, bytes_per_component=1, bytes_per_message=0)
    assert cost_of(own, 1000) == pytest.approx([2.008] * 4)
    slow = EnergyMessage("nb-iot", rate=1000.0, bytes_per_component=1, bytes_per_message=0)
    assert cost_of(slow, 125) == pytest.approx([3.6 * 0.22] * 4)  # one second


def test_technologies_are_ordered_as_is_known():
    """Per bit sent: Wi-Fi < LTE < 3G < LoRa < NB-IoT; LTE pays for its tail."""
    per_bit = {name: radio.per_bit(False) for name, radio in RADIOS.items()}
    assert sorted(per_bit, key=per_bit.get) == ["wifi", "lte", "3g", "lora", "nb-iot"]
    assert max(RADIOS, key=lambda name: RADIOS[name].tail) == "lte"


def test_carbon():
    assert cost_of(CarbonCompute(EnergyCompute(100.0, 36.0), 250.0), 1.0, role="compute") == [0.25] * 4
    varying = CarbonCompute(EnergyCompute(100.0, 36.0), trace=[250.0, 500.0])
    assert cost_of(varying, 0.5, t=1, role="compute") == pytest.approx([0.25] * 4)
    assert varying.mean_cost == pytest.approx(0.375)
    sent = CarbonMessage(EnergyMessage(per_bit=1.0, wake=0.0, bytes_per_message=0), intensity=[1, 2, 3, 4])
    assert cost_of(sent, 90_000) == pytest.approx([1, 2, 3, 4])  # 3.6 MJ are 1 kWh


def test_money():
    assert cost_of(MoneyMessage("2 EUR / GB", ByteMessage(1.0, 0.0)), 10**9) == pytest.approx([2.0] * 4)
    by_energy = MoneyCompute("36 cent / kWh", EnergyCompute(1000.0, 3600.0), trace=[1.0, 3.0])
    assert cost_of(by_energy, 1.0, t=1, role="compute") == pytest.approx([1.08] * 4)
    assert by_energy.mean_cost == pytest.approx(0.72)
    by_time = MoneyCompute("3.6 USD / hour", DeviceCompute(classes={"any": {"share": 1.0}}))
    assert cost_of(by_time, 1.0, role="compute") == pytest.approx([0.001] * 4)
    assert [model.unit for model in (by_energy, by_time)] == ["EUR", "USD"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 EUR / MB", (1e-6, "EUR", "byte")),
        ("0.36 USD/kWh", (1e-7, "USD", "joule")),
        ("1 € / hour", (1 / 3600, "EUR", "second")),
    ],
)
def test_prices(text, expected):
    assert price_of(text) == (pytest.approx(expected[0]), *expected[1:])


# Devices ---------------------------------------------------------------------------------------


def test_a_client_has_the_same_class_for_every_knob():
    clients = 900
    compute = np.array(cost_of(DeviceCompute(), 1.0, role="compute", clients=clients))
    link = DeviceMessage(bytes_per_component=1.0, bytes_per_message=0.0)
    sending = np.array(cost_of(link, 1, clients=clients))
    for name, entry in CLASSES.items():
        mine = np.isclose(compute, 1 / entry["speed"])
        assert 0.27 < mine.mean() < 0.4, name
        assert np.array_equal(mine, np.isclose(sending, 8 / entry["uplink"])), name
    joules = DeviceMessage(bytes_per_component=1.0, bytes_per_message=0.0, unit="joule")
    slow = np.isclose(compute, 1 / CLASSES["slow"]["speed"])
    ratio = np.array(cost_of(joules, 1, clients=clients)) / sending
    assert ratio[slow] == pytest.approx(CLASSES["slow"]["radio"])


def test_classes_by_list():
    members = ["slow", "fast", "fast", "medium"]
    model = DeviceCompute(per_gradient=2.0, members=members, unit="joule")
    expected = [2.0 * CLASSES[name]["power"] / CLASSES[name]["speed"] for name in members]
    assert cost_of(model, 1.0, role="compute") == pytest.approx(expected)
    assert model.mean_cost == pytest.approx(expected)


def test_the_mean_over_drawn_classes():
    classes = {"a": {"share": 0.25, "speed": 1.0}, "b": {"share": 0.75, "speed": 0.5}}
    model = DeviceCompute(classes=classes)
    assert model.mean_cost == pytest.approx(1.75)
    assert np.mean(cost_of(model, 1.0, role="compute", clients=4000)) == pytest.approx(1.75, abs=0.03)


def test_the_server_reaches_the_slowest():
    link = DeviceMessage(bytes_per_component=1.0, bytes_per_message=0.0)
    assert cost_of(link, 1, role="downlink") == pytest.approx(8 / 3.5e6)


# Availability ----------------------------------------------------------------------------------


def test_those_who_are_away_can_do_nothing():
    trace = {"values": [1, 0, 0], "random_start": True}
    compute, uplink = AvailableCompute(trace), AvailableMessage(trace, PacketMessage())
    seen = set()
    for t in range(6):
        away = np.isinf(cost_of(compute, 0.5, t, role="compute", clients=50))
        assert np.array_equal(away, np.isinf(cost_of(uplink, 3, t, clients=50)))
        assert cost_of(compute, 0.0, t, role="compute", clients=50) == [0] * 50
        assert cost_of(uplink, 0, t, clients=50) == [0] * 50
        there = uplink.at(moment(t, 50)).present(3)
        assert (np.array(cost_of(uplink, 3, t, clients=50))[~away] == there).all()
        seen |= {int(away.sum())}
    assert min(seen) > 20
    assert max(seen) < 50


def test_a_trace_of_something_else_is_no_availability():
    with pytest.raises(InputError, match=r"trace must have no other values than 0 \(away\) and 1 .* got 0.5"):
        AvailableMessage([1.0, 0.5]).prepare(Entities.all_clients(2))


def test_nobody_away_is_the_cost_itself():
    cost = Linear(np.ones(3))
    assert with_away(cost, np.zeros(3, dtype=bool)) is cost


def test_away_twice():
    cost = with_away(Affine(np.ones(3), np.ones(3)), np.array([True, False, False]))
    both = with_away(scaled(cost, np.full(3, 2.0)), np.array([False, True, False]))
    assert both(1).tolist() == [np.inf, np.inf, 4.0]
    staircase = with_away(PacketMessage(1.0, 2).at(moment()), np.array([True, False, False, False]))
    assert scaled(staircase, np.full(4, 3.0))(3).tolist() == [np.inf, 6.0, 6.0, 6.0]


# What holds for all ----------------------------------------------------------------------------


def test_memories_inside_are_kept():
    outer = CarbonMessage(AvailableMessage([1], GaussMarkov(unit="joule")), 100.0)
    for t in range(5):
        outer.at(moment(t))
    fresh = CarbonMessage(AvailableMessage([1], GaussMarkov(unit="joule")), 100.0)
    fresh.restore(copy.deepcopy(outer.state()))
    assert set(outer.state()) == {"cost.cost.gain", "cost.cost.next"}
    assert np.array_equal(fresh.at(moment(5))(7), outer.at(moment(5))(7))


@pytest.mark.parametrize(
    ("family", "table", "message"),
    [
        (MESSAGE_COSTS, {"kind": "bandwidth", "rate": "2 MB"}, "here.rate must be in bit / second or a unit"),
        (MESSAGE_COSTS, {"kind": "bandwidth", "rate": 0}, "here.rate must be > 0 and finite, got 0"),
        (
            MESSAGE_COSTS,
            {"kind": "bandwidth", "trace": {"path": "a", "ed": 1}},
            "here.trace.ed is not a param",
        ),
        (MESSAGE_COSTS, {"kind": "bandwidth", "trace": {}}, "here.trace .*needs either path or values"),
        (MESSAGE_COSTS, {"kind": "available"}, "here.trace is needed by available"),
        (MESSAGE_COSTS, {"kind": "energy", "technology": "6g"}, "here.technology must be one of lte, 3g"),
        (MESSAGE_COSTS, {"kind": "carbon", "cost": "bytes"}, "cost must be counted in joule, got byte"),
        (
            MESSAGE_COSTS,
            {"kind": "carbon", "cost": {"kind": "enrgy"}},
            "here.cost.kind must be one of fading",
        ),
        (MESSAGE_COSTS, {"kind": "money", "price": "2 GB"}, "here.price must be money ≥ 0 for energy"),
        (MESSAGE_COSTS, {"kind": "money", "price": 2}, "here.price must be money ≥ 0 for energy"),
        (MESSAGE_COSTS, {"kind": "money", "cost": "energy"}, "cost must be counted in byte, got joule"),
        (MESSAGE_COSTS, {"kind": "gilbert-elliott", "cost": "measured"}, "cost must not be measured"),
        (MESSAGE_COSTS, {"kind": "gilbert-elliott", "to_bad": 0}, r"here.to_bad must be in \(0, 1\], got 0"),
        (
            MESSAGE_COSTS,
            {"kind": "gauss-markov", "correlation": 1},
            r"here.correlation must be in \[0, 1\), got 1",
        ),
        (COMPUTE_COSTS, {"kind": "device", "members": ["quick"]}, "members must be classes, got 'quick'"),
        (
            COMPUTE_COSTS,
            {"kind": "device", "classes": {"a": {"share": 0.5}}},
            "shares that sum to 1, got 0.5",
        ),
        (
            COMPUTE_COSTS,
            {"kind": "device", "classes": {"a": {"sped": 1}}},
            "here.classes.a.sped is not a param",
        ),
        (COMPUTE_COSTS, {"kind": "device", "classes": []}, "here.classes must be a table of classes by name"),
        (COMPUTE_COSTS, {"kind": "device", "classes": {"a": 3}}, "here.classes.a must be one of class"),
        (COMPUTE_COSTS, {"kind": "energy", "power": "3 J"}, "here.power must be in joule / second"),
    ],
)
def test_what_is_refused(family, table, message):
    with pytest.raises(InputError, match=message):
        family.resolve(table, "here")


def test_units_as_people_write_them():
    resolved = MESSAGE_COSTS.resolve({"kind": "bandwidth", "rate": ["20 Mbit/s", "64 kbit/s"]}, "here")
    assert resolved["rate"] == [20e6, 64e3]
    resolved = COMPUTE_COSTS.resolve({"kind": "carbon", "intensity": "0.3 kgCO2 / kWh"}, "here")
    assert resolved["intensity"] == pytest.approx(300)
    resolved = MESSAGE_COSTS.resolve({"kind": "energy", "per_bit": "500 nJ / bit"}, "here")
    assert resolved["per_bit"] == pytest.approx(5e-7)


def test_every_kind_says_what_it_is_counted_in():
    units = {
        "bytes": ByteMessage(),
        "seconds": [Bandwidth(), DeviceMessage(), DeviceCompute()],
        "joules": [EnergyCompute(), EnergyMessage(), DeviceCompute(unit="joule")],
    }
    assert units["bytes"].unit == "byte"
    assert {model.unit for model in units["seconds"]} == {"second"}
    assert {model.unit for model in units["joules"]} == {"joule"}
    assert CarbonCompute().unit == CarbonMessage().unit == "gCO2"
    assert AvailableCompute([1], ConstantCompute(unit="joule")).unit == "joule"
    assert AvailableMessage([1], ConstantMessage()).unit == ""
