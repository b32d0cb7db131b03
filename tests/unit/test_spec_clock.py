"""The section [clock], and train.duration: what they mean, and what is refused in which words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flexfl
from flexfl.clock import NoClock
from flexfl.control.timing import Timing
from flexfl.costs.transfer import LinkRate
from flexfl.errors import InputError
from flexfl.spec import parse
from flexfl.spec.build import build_setup
from flexfl.spec.load import to_toml
from flexfl.streams import Entities, Streams


def timing_of(clock: dict[str, Any], **more: Any) -> Timing:
    found = build_setup(parse({"clock": clock} | more)).clock
    assert isinstance(found, Timing)
    return found


def test_without_the_section_there_is_no_clock():
    spec = parse({})
    assert isinstance(build_setup(spec).clock, NoClock)
    assert "clock" not in spec.plain()


def test_every_iteration_may_take_as_long():
    assert timing_of({"iteration": "30 s"}) == Timing(iteration=30.0)
    assert timing_of({"iteration": 2}) == Timing(iteration=2.0)


def test_times_by_knob_in_seconds():
    timing = timing_of(
        {
            "compute": {"kind": "uniform", "high": 3.0},
            "uplink": "200 kbit/s",
            "deadline": "1 min",
            "overhead": 0.2,
        }
    )
    assert timing.models["compute"].unit == "second"
    assert timing.models["uplink"] == LinkRate(200_000.0)
    assert (timing.deadline, timing.overhead, set(timing.charged)) == (60.0, 0.2, set())


def test_costs_in_seconds_are_the_time_where_none_is_given():
    seconds = {"kind": "constant", "unit": "second"}
    timing = timing_of({"uplink": "1 Mbit/s"}, costs={"compute": seconds, "uplink": seconds})
    assert set(timing.charged) == {"compute"}
    assert set(timing.models) == {"uplink"}
    assert (timing.overhead, timing.deadline) == (0.05, math.inf)


def test_a_resolved_spec_says_the_same_again():
    given = {"clock": {"uplink": "200 kbit/s", "deadline": "30 s"}, "train": {"duration": "30 days"}}
    spec = parse(given)
    assert parse(spec.plain()) == spec
    assert spec.train.duration == 30 * 86400.0
    assert 'kind = "rate"' in to_toml(spec)


def test_bytes_at_a_rate_by_hand():
    link = LinkRate(rate=np.array([800.0, 80.0]), latency=0.5, per_message=10.0, idle=5.0, burst=15.0)
    moment = Streams(1).moment("clock.uplink", 0, 9, Entities.all_clients(2))
    found = link.at(moment).of_bytes(np.array([3, 3]), np.array([100, 100]))
    assert found.tolist() == [0.5 + 8 * 100 / 800, 0.5 + 8 * 100 / 80]
    assert link.at(moment).of_bytes(np.array([0, 0]), np.array([0, 0])).tolist() == [0.5, 0.5]


FAULTS = [
    ({}, "clock must say what takes time"),
    ({"iteration": "30 m"}, "clock.iteration"),
    ({"iteration": 0}, "clock.iteration must be > 0 and finite, got 0"),
    ({"iteration": "30 MB"}, "clock.iteration must be in second"),
    ({"deadline": -1}, "clock.deadline must be > 0 and finite, got -1"),
    ({"overhead": 0}, "clock.overhead must be > 0 and finite, got 0"),
    (
        {"iteration": 1, "uplink": "1 Mbit/s"},
        "clock.iteration says how long an iteration takes, and clock.uplink",
    ),
    ({"uplink": {"kind": "measured"}}, "clock.uplink.kind cannot be measured in a simulation"),
    ({"compute": {"kind": "measured"}}, "clock.compute.kind cannot be measured in a simulation"),
    ({"compute": "1 Mbit/s"}, "clock.compute must be one of"),
    ({"compute": {"kind": "rate", "rate": 1}}, "clock.compute.kind is for uplink and downlink"),
    ({"uplink": {"kind": "constant", "unit": "byte"}}, "clock.uplink must be a cost in seconds, got 'byte'"),
    ({"uplink": {"kind": "rate"}}, "clock.uplink.rate is needed by rate"),
    ({"uplink": {"kind": "rate", "rate": "5 MB"}}, "clock.uplink.rate must be in bit / second"),
    ({"uplink": "fast"}, "clock.uplink must be the rate of a link, or a kind of cost in seconds, got 'fast'"),
    (
        {"downlink": "5 MB"},
        "clock.downlink must be the rate of a link, or a kind of cost in seconds, got '5 MB'",
    ),
    (
        {"uplink": {"kind": "rate", "rate": [1.0, 2.0]}},
        "clock.uplink.rate must have one number for each of the 100",
    ),
    ({"downlink": {"kind": "rate", "rate": [1.0, 2.0]}}, "clock.downlink.rate must be one number"),
    ({"dead_line": 3}, "clock.dead_line is not a key here, got 3; did you mean deadline?"),
]


@pytest.mark.parametrize(("clock", "words"), FAULTS)
def test_what_is_wrong_is_said(clock, words):
    with pytest.raises(InputError) as caught:
        parse({"clock": clock, "train": {"duration": "never"}})
    text = str(caught.value)
    assert words in text
    assert "train.duration" in text, "with all other faults"
    assert all(fault.remedy for fault in caught.value.faults)


class Slow:
    """A time of one's own, in no unit."""

    def at(self, moment):
        return lambda amount: np.asarray(amount) * 1.0


def test_a_time_of_ones_own_must_be_in_seconds():
    with pytest.raises(InputError, match=r"clock\.uplink must be a cost in seconds, got 'no unit'"):
        flexfl.simulate("quickstart", clock={"uplink": Slow()})


def test_a_duration_needs_a_clock():
    with pytest.raises(
        InputError, match=r"train\.duration needs a clock, got '30 d'; say how long an iteration"
    ):
        flexfl.simulate("quickstart", train={"duration": "30 days"})


def test_a_budget_by_the_clock_needs_one():
    seconds = {"kind": "constant", "unit": "second"}
    with pytest.raises(InputError, match=r"budget\.compute needs a clock: it is for a time.*\[clock\]"):
        flexfl.simulate(
            "quickstart",
            budget={"compute": "30 s / hour"},
            costs={"compute": seconds},
            control={"policy": "price"},
        )
