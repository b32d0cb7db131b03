"""Quantities as people write them, and as they are shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfl.parameters import Measure, above_zero
from flexfl.units import COST_UNITS, amount_of, average, convert, parse_amount, show

MONTH = 365.25 * 86400 / 12


@pytest.mark.parametrize(
    ("text", "value", "unit", "per", "seconds"),
    [
        ("50 MB / month", 50e6, "byte", "time", MONTH),
        ("2 kB / iteration", 2000.0, "byte", "iteration", math.nan),
        ("2 kB / 4 iterations", 500.0, "byte", "iteration", math.nan),
        ("20 MB", 20e6, "byte", "run", math.nan),
        ("5 kJ", 5000.0, "joule", "run", math.nan),
        ("2 Wh per day", 7200.0, "joule", "time", 86400.0),
        ("30 s / hour", 30.0, "second", "time", 3600.0),
        ("0.5 gCO2 / iteration", 0.5, "gCO2", "iteration", math.nan),
        ("3 kgCO2e", 3000.0, "gCO2", "run", math.nan),
        ("3 EUR", 3.0, "EUR", "run", math.nan),
        ("250 ct", 2.5, "EUR", "run", math.nan),
        ("4 $ / week", 4.0, "USD", "time", 7 * 86400.0),
        ("8 Mbit", 1e6, "byte", "run", math.nan),
        ("1 GiB / 2 weeks", 2.0**30, "byte", "time", 14 * 86400.0),
        ("1e3 KB", 1e6, "byte", "run", math.nan),
    ],
)
def test_amounts(text, value, unit, per, seconds):
    found = parse_amount(text)
    assert (found.value, found.unit, found.per) == (pytest.approx(value), unit, per)
    assert found.seconds == pytest.approx(seconds, nan_ok=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "5",
        "5 MB per",
        "5 MB / month / day",
        "__import__('os')",
        "9**9 B",
        "5 m",
        "1e999 B",
        "5 MB / 0 day",
    ],
)
def test_what_is_not_an_amount(text):
    with pytest.raises(ValueError, match=r"must be|has the unit"):
        parse_amount(text)


@given(st.text(max_size=30))
def test_any_text_is_an_amount_or_refused_with_a_rule(text):
    refused = ""
    try:
        assert parse_amount(text).unit in COST_UNITS
    except ValueError as error:
        refused = str(error)
    assert refused.startswith(("must be", "has the unit")) or not refused


def test_what_an_amount_comes_to_in_an_iteration():
    assert average(amount_of(0.3), 10) == 0.3
    assert average(amount_of("20 MB"), 1000) == 20_000
    assert average(amount_of("1 kB / minute"), 10, pace=6.0) == pytest.approx(100.0)
    assert math.isnan(average(amount_of("1 kB / minute"), 10))


def test_conversion():
    assert convert("20 Mbit/s", "bit / second") == pytest.approx(20e6)
    assert convert("3.6 MJ", "joule") == convert("1 kWh", "joule")
    with pytest.raises(ValueError, match="must be in joule"):
        convert("3 MB", "joule")


def test_a_parameter_with_a_unit_takes_numbers_and_texts():
    rule = Measure("must be > 0", above_zero, per_client=True, unit="watt")
    assert rule.check("2.5 kW") == 2500.0
    assert rule.check([1, "2 mW"]) == [1.0, 0.002]
    for wrong in ("2 MB", "0 W", -1, "two"):
        with pytest.raises(ValueError, match=r"fault|must|has"):
            rule.check(wrong)


@given(st.sampled_from(["", *COST_UNITS]), st.floats(0, 1e15))
def test_what_is_shown_reads_back(unit, value):
    text = show(value, unit, digits=12)
    if not unit:
        assert float(text) == pytest.approx(value, rel=1e-9)
        return
    assert parse_amount(text.replace("µ", "u")).value == pytest.approx(value, rel=1e-9, abs=1e-12)
