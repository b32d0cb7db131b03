"""What loss and accuracy can be drawn against: iterations, seconds, bytes or costs up to an evaluation."""

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


@dataclass(frozen=True)
class Quantity:
    """A quantity that grows during a run.

    Attributes:
        title: What it is, with its unit in parentheses; of bytes and costs, the unit follows from the runs.
        at_evaluations: Returns its value at each evaluation of a run, (P,).
    """

    title: str
    at_evaluations: Callable[[Run], FloatArray]


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


QUANTITIES = {
    "iteration": Quantity("iteration", lambda run: run.evaluations["iteration"]),
    "seconds": Quantity("time of the run (seconds)", lambda run: run.evaluations["seconds"]),
    "bytes": Quantity("sent up and down", lambda run: _bytes(run, up=True, down=True)),
    "uplink-bytes": Quantity("sent up by all clients", lambda run: _bytes(run, up=True, down=False)),
    "downlink-bytes": Quantity("broadcast by the server", lambda run: _bytes(run, up=False, down=True)),
    "cost": Quantity("total cost of computing, uplink and downlink", lambda run: _cost(run, KNOBS)),
    "compute-cost": Quantity("computing cost of all clients", lambda run: _cost(run, ["compute"])),
    "uplink-cost": Quantity("uplink cost of all clients", lambda run: _cost(run, ["uplink"])),
    "downlink-cost": Quantity("downlink cost of the server", lambda run: _cost(run, ["downlink"])),
}
"""By name, each the sum from the beginning. A broadcast counts once, however many clients receive it. `cost`
adds three costs: that means something only where they have the same unit."""


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
        InputError: It is a cost that the groups, or the knobs that it adds, count in different units.
    """
    quantity = QUANTITIES[name]
    units = _units(name, groups)
    if len(units) > 1:
        listed = ", ".join(sorted(unit or "abstract" for unit in units))
        remedy = "choose iteration, bytes, or the cost of one knob, of runs that count it in one unit"
        fault = Fault("x", f"must be in one unit, not in several ({listed})", name, remedy)
        raise InputError([fault], "the report")
    basic = next(iter(units))
    if not name.endswith("bytes") and not basic:
        return Axis(name, f"{quantity.title} (unit of the spec)" if name.endswith("cost") else quantity.title)
    ends = [quantity.at_evaluations(run)[-1:] for group in groups for run in group.runs]
    most = float(np.nanmax(np.concatenate([[0.0], *ends])))
    divisor, unit = scale_of(most, basic) if basic else byte_unit(most)
    return Axis(name, f"{quantity.title} ({unit})", divisor)


def _units(name: str, groups: Sequence[Group]) -> set[str]:
    """Return what an axis of costs is counted in by these groups; {""} for other axes."""
    if not name.endswith("cost"):
        return {""}
    knobs = KNOBS if name == "cost" else (name.removesuffix("-cost"),)
    return {run.units.get(knob, "") for group in groups for run in group.runs for knob in knobs} or {""}


def byte_unit(most: float) -> tuple[float, str]:
    """Return the unit for a number of bytes: how many bytes it has, and its name.

    >>> byte_unit(2.5e6)
    (1000000.0, 'MB')
    """
    return next(((size, unit) for size, unit in _BYTE_UNITS if most >= size), _BYTE_UNITS[-1])
