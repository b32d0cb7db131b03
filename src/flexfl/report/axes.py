"""What loss and accuracy can be drawn against: iterations, time, bytes or costs up to an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.errors import Fault, InputError, nearest
from flexfl.parameters import KNOBS
from flexfl.report.groups import Group
from flexfl.results import Run
from flexfl.results.columns import SPENT_COLUMN
from flexfl.units import scale_of

_BYTE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
_TIME_UNITS = ((2 * 86400.0, "days"), (2 * 3600.0, "hours"), (120.0, "minutes"), (1.0, "seconds"))
"""From how many seconds on an axis is in this unit."""
_IN_SECONDS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
_PLURAL = {"byte": "bytes", "second": "seconds", "joule": "joules"}
_UNIT_AXES = {"joules": "joule", "gCO2": "gCO2", "euros": "EUR", "dollars": "USD"}
_CLOCK, _TRAINING = "seconds", "training-seconds"


@dataclass(frozen=True)
class Quantity:
    """A quantity that grows during a run.

    Attributes:
        title: What it is, with its unit in parentheses; of bytes, times and costs, as the runs have it.
        at_evaluations: Returns its value at each evaluation of a run, (P,).
        knobs: Of a cost, those whose unit it has.
    """

    title: str
    at_evaluations: Callable[[Run], FloatArray]
    knobs: Sequence[str] = ()


def _up_to_evaluations(run: Run, per_iteration: FloatArray) -> FloatArray:
    """Return the sum over the iterations before each evaluation; NaN if they are not recorded (yet)."""
    total = np.concatenate([[0.0], np.cumsum(per_iteration)])
    done = run.evaluations["iteration"].astype(np.int64)
    return np.where(done < len(total), total[np.minimum(done, len(total) - 1)], np.nan)


def _bytes(run: Run, *, up: bool, down: bool) -> FloatArray:
    sent_up = run.iterations["uplink_bytes_mean"] * run.spec["data"]["clients"]
    return _up_to_evaluations(run, up * sent_up + down * run.iterations["downlink_bytes"])


def _cost(run: Run, knobs: Sequence[str]) -> FloatArray:
    """Return what was spent, by all clients and by the server."""
    entities = {"compute": run.spec["data"]["clients"], "uplink": run.spec["data"]["clients"], "downlink": 1}
    spent = [entities[knob] * run.iterations[SPENT_COLUMN[knob]] for knob in knobs]
    return _up_to_evaluations(run, np.sum(spent, axis=0))


def has_clock(run: Run) -> bool:
    """Return whether a run was timed by a clock (`flexfl.clock`)."""
    return bool(np.isfinite(run.iterations["clock"]).any())


def _clock(run: Run) -> FloatArray:
    """Return what the clock said at each evaluation; without a clock, the time that training took."""
    if not has_clock(run):
        return run.evaluations["seconds"]
    return _up_to_evaluations(run, np.diff(run.iterations["clock"], prepend=0.0))


def _in_unit(unit: str) -> Callable[[Run], FloatArray]:
    """Return the quantity that adds what was spent by all knobs whose costs are in that unit."""

    def total(run: Run) -> FloatArray:
        knobs = [knob for knob in KNOBS if run.units.get(knob) == unit]
        return _cost(run, knobs) if knobs else np.full(len(run.evaluations["iteration"]), np.nan)

    return total


QUANTITIES = {
    "iteration": Quantity("iteration", lambda run: run.evaluations["iteration"]),
    _CLOCK: Quantity("time of the run", _clock),
    _TRAINING: Quantity("time of the computation", lambda run: run.evaluations["seconds"]),
    "bytes": Quantity("sent up and down", lambda run: _bytes(run, up=True, down=True)),
    "uplink-bytes": Quantity("sent up by all clients", lambda run: _bytes(run, up=True, down=False)),
    "downlink-bytes": Quantity("broadcast by the server", lambda run: _bytes(run, up=False, down=True)),
    "cost": Quantity("total cost of computing, uplink and downlink", lambda run: _cost(run, KNOBS), KNOBS),
    "compute-cost": Quantity(
        "computing cost of all clients", lambda run: _cost(run, ["compute"]), ["compute"]
    ),
    "uplink-cost": Quantity("uplink cost of all clients", lambda run: _cost(run, ["uplink"]), ["uplink"]),
    "downlink-cost": Quantity(
        "downlink cost of the server", lambda run: _cost(run, ["downlink"]), ["downlink"]
    ),
    **{
        name: Quantity(f"spent by all clients and the server ({_PLURAL.get(unit, unit)})", _in_unit(unit))
        for name, unit in _UNIT_AXES.items()
    },
}
"""By name, each the sum from the beginning. A broadcast counts once, however many clients receive it. `cost`
adds three costs: that means something only where they have the same unit. Time is that of the run's clock; of
runs of which some have none, what training took on the machine."""


@dataclass(frozen=True)
class Axis:
    """An x axis for some groups: a quantity, its label and unit.

    Attributes:
        name: Its name in `QUANTITIES`.
        label: Label of the axis.
        divisor: Number of basic units in the unit of the axis.
    """

    name: str = "iteration"
    label: str = "iteration"
    divisor: float = 1.0

    @property
    def is_iteration(self) -> bool:
        """Whether runs have the same values on this axis, so that they need not be interpolated."""
        return self.name == "iteration"

    def at_evaluations(self, run: Run) -> FloatArray:
        """Return the value of this axis at each evaluation of a run, (P,)."""
        return QUANTITIES[self.name].at_evaluations(run) / self.divisor


def axis_faults(name: str) -> list[Fault]:
    """Return a fault if there is no x axis of this name."""
    if name in QUANTITIES:
        return []
    return [Fault("x", f"must be one of {', '.join(QUANTITIES)}", name, nearest(name, QUANTITIES))]


def axis_of(name: str, groups: Sequence[Group]) -> Axis:
    """Return the x axis `name` for these groups.

    Raises:
        InputError: none of their costs is in that unit, or those that it adds are in different ones.
    """
    runs = [run for group in groups for run in group.runs]
    if name == _CLOCK and 0 < sum(map(has_clock, runs)) < len(runs):
        name = _TRAINING
    quantity = QUANTITIES[name]
    if name in _UNIT_AXES and not any(_UNIT_AXES[name] in run.units.values() for run in runs):
        listed = _PLURAL.get(_UNIT_AXES[name], _UNIT_AXES[name])
        rule = f"needs costs in {listed}, which these runs do not have"
        raise InputError([Fault("x", rule, name, "choose another axis, such as bytes")], "the options")
    basic = _one_unit(name, quantity, runs)
    if quantity.knobs and not basic:
        return Axis(name, f"{quantity.title} (unit of the spec)")
    if not basic and not name.endswith(("bytes", "seconds")):
        return Axis(name, quantity.title)
    ends = [quantity.at_evaluations(run)[-1:] for run in runs]
    most = float(np.nanmax(np.concatenate([[0.0], *ends])))
    scales = byte_unit if name.endswith("bytes") else time_unit
    divisor, unit = scale_of(most, basic) if basic else scales(most)
    return Axis(name, f"{quantity.title} ({unit})", divisor)


def _one_unit(name: str, quantity: Quantity, runs: Sequence[Run]) -> str:
    """Return what an axis of costs is counted in by these runs; "" for other axes and abstract costs."""
    units = {run.units.get(knob, "") for run in runs for knob in quantity.knobs} or {""}
    if len(units) == 1:
        return next(iter(units))
    listed = ", ".join(sorted(unit or "abstract" for unit in units))
    remedy = "choose iteration, bytes, or the cost of one knob, of runs that count it in one unit"
    raise InputError(
        [Fault("x", f"must be in one unit, not in several ({listed})", name, remedy)], "the report"
    )


def time_unit(most: float) -> tuple[float, str]:
    """Return the unit for a number of seconds: how many seconds it has, and its name.

    >>> time_unit(7200.0)
    (3600.0, 'hours')
    """
    name = next((unit for least, unit in _TIME_UNITS if most >= least), "seconds")
    return _IN_SECONDS[name], name


def byte_unit(most: float) -> tuple[float, str]:
    """Return the unit for a number of bytes: how many bytes it has, and its name.

    >>> byte_unit(2.5e6)
    (1000000.0, 'MB')
    """
    return next(((size, unit) for size, unit in _BYTE_UNITS if most >= size), _BYTE_UNITS[-1])
