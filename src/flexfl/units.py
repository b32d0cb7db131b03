"""Quantities as people write them ("50 MB / month", "5 kJ", "20 Mbit/s"), and numbers shown in their unit.

A cost is counted in one of the units of `COST_UNITS`, or in none: the paper's abstract costs. What a person
writes is converted to it by pint; a text has a number, a unit, and perhaps what it is for ("/ month").
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

COST_UNITS = ("byte", "second", "joule", "gCO2", "EUR", "USD")
"""What costs may be counted in; "" is the paper's abstract cost."""
_NUMBER = r"(?P<value>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_WORD = r"[A-Za-zµμ€$]+\d?[a-z]*"
_TEXT = re.compile(
    rf"\s*{_NUMBER}\s*(?P<unit>{_WORD})"
    rf"(?:\s*(?:/|per\s)\s*(?P<count>\d+\.?\d*)?\s*(?P<per>{_WORD}))?\s*"
)
_SPELT = {"KB": "kB", "Kbit": "kbit", "€": "EUR", "$": "USD", "μJ": "µJ"}
_DEFINITIONS = """
tera- = 1e12 = T-
giga- = 1e9 = G-
mega- = 1e6 = M-
kilo- = 1e3 = k-
milli- = 1e-3 = m-
micro- = 1e-6 = µ- = u-
nano- = 1e-9 = n-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
second = [time] = s = sec
minute = 60 * second = min
hour = 60 * minute = h
day = 24 * hour = d
week = 7 * day
year = 365.25 * day
month = year / 12
bit = [information]
byte = 8 * bit = B
bps = bit / second
joule = [energy] = J
watt = joule / second = W
Wh = watt * hour
gCO2 = [carbon] = _ = gCO2e = gCO2eq
gramCO2 = gCO2
tCO2 = 1e6 * gCO2
EUR = [euro] = _ = euro
USD = [dollar] = _ = dollar
cent = 0.01 * EUR = ct
iteration = [iteration]
"""
"""Just the units that costs need: in pint's own table ct is a mass, and a byte has no dimension."""


@lru_cache(maxsize=1)
def _registry() -> Any:
    import pint

    registry: Any = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


@dataclass(frozen=True)
class Amount:
    """A budget with its unit.

    Attributes:
        value: in `unit`.
        unit: one of `COST_UNITS`.
        per: "run" for a total, "iteration" for an average, "time" for a rate.
        seconds: of a rate: the time in which `value` may be spent.
    """

    value: float
    unit: str
    per: str = "run"
    seconds: float = math.nan


def parse_amount(text: str) -> Amount:
    """Return the budget that a text says.

    >>> parse_amount("2 kB / iteration")
    Amount(value=2000.0, unit='byte', per='iteration', seconds=nan)
    >>> parse_amount("30 s / hour")
    Amount(value=30.0, unit='second', per='time', seconds=3600.0)

    Raises:
        ValueError: it is not a number with a unit that costs have; the message is a rule.
    """
    number, unit, count, per = _split(text)
    quantity = _quantity(number, unit)
    found = next((known for known in COST_UNITS if _alike(quantity, known)), None)
    if found is None:
        raise ValueError(f"must be in bytes, seconds, joules, gCO2, EUR or USD, not in {unit}")
    value = float(quantity.to(found).magnitude)
    if per is None:
        return Amount(value, found)
    period = _quantity(count, per)
    if period.check("[iteration]"):
        return Amount(value / count, found, "iteration")
    if not period.check("[time]"):
        raise ValueError(f"must be for an iteration or a time such as a month, not for a {per}")
    return Amount(value, found, "time", float(period.to("second").magnitude))


def amount_of(given: float | str) -> Amount:
    """Return a budget as a spec has it: a number is an average of abstract costs.

    >>> amount_of(0.01)
    Amount(value=0.01, unit='', per='iteration', seconds=nan)
    """
    return parse_amount(given) if isinstance(given, str) else Amount(float(given), "", "iteration")


def average(amount: Amount, iterations: int, pace: float = math.nan) -> float:
    """Return what a budget comes to in an iteration, of T that take `pace` seconds each.

    >>> average(parse_amount("20 MB"), 1000), average(parse_amount("30 s / hour"), 10, pace=60)
    (20000.0, 0.5)
    """
    if amount.per == "iteration":
        return amount.value
    return amount.value / max(1, iterations) if amount.per == "run" else amount.value * pace / amount.seconds


def convert(text: str, unit: str) -> float:
    """Return the number that a text stands for, in `unit`.

    >>> convert("20 Mbit/s", "bit / second"), convert("0.2 kgCO2 / kWh", "gCO2 / joule") > 5e-5
    (20000000.0, True)

    Raises:
        ValueError: it is not a number with a unit, or one of another dimension; the message is a rule.
    """
    number, name, count, per = _split(text)
    quantity = _quantity(number, name)
    if per is not None:
        quantity = quantity / _quantity(count, per)
    if not _alike(quantity, unit):
        raise ValueError(f"must be in {unit} or a unit that it can be converted to")
    return float(quantity.to(unit).magnitude)


def _alike(quantity: Any, unit: str) -> bool:
    """Return whether a quantity has the dimension of a unit."""
    return bool(quantity.dimensionality == _registry().parse_units(unit).dimensionality)


def _split(text: str) -> tuple[float, str, float, str | None]:
    matched = _TEXT.fullmatch(text)
    if matched is None:
        raise ValueError('must be a number with a unit, such as "50 MB / month"')
    number, count = float(matched["value"]), float(matched["count"] or 1)
    if not math.isfinite(number) or not count:
        raise ValueError("must be a finite number with a unit")
    return number, matched["unit"], count, matched["per"]


def _quantity(number: float, unit: str) -> Any:
    from pint.errors import UndefinedUnitError

    try:
        return _registry().Quantity(number, _registry().parse_units(_SPELT.get(unit, unit)))
    except UndefinedUnitError as error:
        raise ValueError(f"has the unit {unit}, which is not known") from error


_PREFIXES = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)
_SYMBOLS = {"byte": "B", "joule": "J", "gCO2": "gCO2", "watt": "W", "bit / second": "bit/s"}
_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_PERIODS = ("year", "month", "week", "day", "hour", "minute", "second")


def show(value: float, unit: str = "", digits: int = 3) -> str:
    """Return a number in its unit, for people.

    >>> show(2310.0, "byte"), show(0.0123), show(90.0, "second"), show(0.5, "EUR"), show(0.0, "byte")
    ('2.31 kB', '0.0123', '1.5 min', '0.5 EUR', '0 B')
    >>> show(999.9, "byte"), show(12345.0, "EUR")
    ('1 kB', '12345 EUR')
    """
    if not unit or not math.isfinite(value):
        return f"{value:.{digits}g}"
    size, name = scale_of(float(f"{value:.{digits}g}"), unit)
    number = f"{value / size:.{digits}g}"
    return f"{value / size:.0f} {name}" if "e+" in number else f"{number} {name}"


def scale_of(most: float, unit: str) -> tuple[float, str]:
    """Return in what to show amounts up to `most`: how many of `unit` it has, and its symbol.

    >>> scale_of(2.5e6, "byte"), scale_of(90.0, "second"), scale_of(5.0, "EUR"), scale_of(5.0, "")
    ((1000000.0, 'MB'), (60.0, 'min'), (1.0, 'EUR'), (1.0, ''))
    """
    if unit == "second":
        steps: tuple[tuple[float, str], ...] = _TIMES
    elif unit not in _SYMBOLS:  # money, or abstract costs
        return 1.0, unit
    else:
        whole = unit in ("byte", "gCO2")  # no milli-bytes
        steps = tuple((size, prefix + _SYMBOLS[unit]) for size, prefix in _PREFIXES if size >= 1 or not whole)
    if not most:
        return next(step for step in steps if step[0] == 1)
    return next((step for step in steps if abs(most) >= step[0]), steps[-1])


def period_of(seconds: float) -> str:
    """Return the time that a rate is for, as people write it.

    >>> period_of(3600.0), period_of(parse_amount("5 MB / 2 month").seconds), period_of(0.25)
    ('hour', '2 month', '250 ms')
    """
    for name in _PERIODS:
        count = seconds / convert(f"1 {name}", "second")
        if count >= 1 and math.isclose(count, round(count), rel_tol=1e-9):
            return name if round(count) == 1 else f"{round(count)} {name}"
    return show(seconds, "second")
