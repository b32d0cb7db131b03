"""Costs that are another cost times a factor that may change over time: carbon, and money.

A factor is a constant, or a constant times a trace: `intensity = "300 gCO2 / kWh"`, or a trace whose values
are gCO2 / kWh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator

from flexfl.arrays import FloatArray, Number
from flexfl.costs.base import Cost
from flexfl.costs.parts import ComputeTable, MessageTable, Wrapper, open_cost, scaled
from flexfl.costs.traces import TraceTable, open_trace
from flexfl.parameters import Measure, fault, from_zero
from flexfl.streams import Moment
from flexfl.units import convert

_JOULES = 3.6e6
"""Of a kWh."""
WORLD = 475.0
"""gCO2 / kWh, the mean of the world's electricity in 2018 (IEA, Global Energy & CO2 Status Report 2019)."""
_Intensity = Annotated[
    Number | None,
    Measure(
        "must be ≥ 0 and finite",
        from_zero,
        'for example "300 gCO2 / kWh"',
        True,
        optional=True,
        unit="gCO2 / kWh",
    ),
]
_MONEY, _COUNTED = ("EUR", "USD"), ("joule", "byte", "second")


class _Multiplied(Wrapper):
    """A cost times a factor: `_scale`, times the trace if there is one."""

    _purpose: ClassVar[str]
    _scale: Number

    def at(self, moment: Moment) -> Cost:
        factor = np.asarray(moment.pick(self._scale), dtype=float)
        if self._trace is not None:
            factor = np.asarray(factor * self._trace.at(moment, self._purpose))
        return scaled(self._cost.at(moment), factor)

    @property
    def mean_cost(self) -> FloatArray | None:
        """The expected cost of one computation, if that of the cost inside is known."""
        inner, over_time = super().mean_cost, 1.0 if self._trace is None else self._trace.mean
        return None if inner is None else np.asarray(inner * np.asarray(self._scale) * over_time)


class _Carbon(_Multiplied):
    _purpose = "carbon"

    @property
    def unit(self) -> str:
        """What it is counted in."""
        return "gCO2"

    def _open(self, cost: Any, intensity: Number | None, trace: Any, *, computing: bool) -> None:
        self._cost = open_cost(cost, computing=computing, units=("joule",))
        self._trace = open_trace(trace)
        if intensity is None:
            intensity = WORLD if trace is None else 1.0
        self._scale = np.asarray(intensity) / _JOULES


@dataclass
class CarbonCompute(_Carbon):
    """Joules of computing times the carbon intensity of the grid.

    Attributes:
        cost: a cost of computing in joules, by its kind or as a table.
        intensity: in gCO2 / kWh; with a trace, what a value of 1 in it stands for. By default 475, the mean
            of the world, and 1 with a trace.
        trace: the intensity over time: a path, a list, or a table with a path.
    """

    cost: ComputeTable = "energy"
    intensity: _Intensity = None
    trace: TraceTable = None

    def __post_init__(self) -> None:
        self._open(self.cost, self.intensity, self.trace, computing=True)


@dataclass
class CarbonMessage(_Carbon):
    """Joules of sending times the carbon intensity of the grid.

    Attributes:
        cost: a cost of sending in joules, by its kind or as a table.
        intensity: in gCO2 / kWh; with a trace, what a value of 1 in it stands for. By default 475, the mean
            of the world, and 1 with a trace.
        trace: the intensity over time: a path, a list, or a table with a path.
    """

    cost: MessageTable = "energy"
    intensity: _Intensity = None
    trace: TraceTable = None

    def __post_init__(self) -> None:
        self._open(self.cost, self.intensity, self.trace, computing=False)


def price_of(text: str) -> tuple[float, str, str]:
    """Return a price as a number, its money, and the unit of what is paid for.

    >>> price_of("2 EUR / GB"), price_of("30 cent / kWh")[1:]
    ((2e-09, 'EUR', 'byte'), ('EUR', 'joule'))

    Raises:
        ValueError: it is no price; the message is a rule.
    """
    for money in _MONEY:
        for counted in _COUNTED:
            try:
                return convert(text, f"{money} / {counted}"), money, counted
            except ValueError:
                continue
    raise ValueError('must be money for energy, data or time, such as "0.3 EUR / kWh" or "2 USD / GB"')


def _price(value: Any) -> str:
    try:
        if isinstance(value, str) and price_of(value)[0] >= 0:
            return value
    except ValueError:
        pass
    rule = 'must be money ≥ 0 for energy, data or time, as "0.3 EUR / kWh" or "2 USD / GB"'
    raise fault(rule, value, "write a number, EUR or USD, and / kWh, / GB or / hour")


_Price = Annotated[str, BeforeValidator(_price)]


class _Priced(_Multiplied):
    _purpose = "money"
    _money: str

    @property
    def unit(self) -> str:
        """What it is counted in."""
        return self._money

    def _open(self, cost: Any, price: str, trace: Any, *, computing: bool) -> None:
        self._scale, self._money, counted = price_of(price)
        self._cost = open_cost(cost, computing=computing, units=(counted,))
        self._trace = open_trace(trace)


@dataclass
class MoneyCompute(_Priced):
    """Computing in money: the joules (or seconds) of a cost times a price.

    Attributes:
        price: "0.3 EUR / kWh", "0.1 USD / hour"; with a trace, what a value of 1 in it stands for.
        cost: a cost of computing in joules (or seconds, for a price of time), by its kind or as a table.
        trace: the price over time: a path, a list, or a table with a path.
    """

    price: _Price = "0.3 EUR / kWh"
    cost: ComputeTable = "energy"
    trace: TraceTable = None

    def __post_init__(self) -> None:
        self._open(self.cost, self.price, self.trace, computing=True)


@dataclass
class MoneyMessage(_Priced):
    """Sending in money: the bytes (or joules, or seconds) of a cost times a price.

    Attributes:
        price: "2 EUR / GB", "0.3 EUR / kWh"; with a trace, what a value of 1 in it stands for.
        cost: a cost of sending in bytes (in joules or seconds for such a price), by its kind or as a table.
        trace: the price over time: a path, a list, or a table with a path.
    """

    price: _Price = "2 EUR / GB"
    cost: MessageTable = "bytes"
    trace: TraceTable = None

    def __post_init__(self) -> None:
        self._open(self.cost, self.price, self.trace, computing=False)
