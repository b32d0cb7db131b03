"""Clients that come and go: another cost, which is infinite while a trace says that they are away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flexfl.costs.available import with_away
from flexfl.costs.base import Cost
from flexfl.costs.parts import ComputeTable, MessageTable, Wrapper, open_cost
from flexfl.costs.traces import TraceTable, open_trace
from flexfl.errors import Fault, InputError
from flexfl.streams import Entities, Moment


class _Availability(Wrapper):
    def _open(self, cost: Any, trace: Any, *, computing: bool) -> None:
        self._cost = open_cost(cost, computing=computing)
        self._trace = open_trace(trace)
        if self._trace is None:
            raise ValueError("needs a trace of 0 (away) and 1 (there)")

    def prepare(self, entities: Entities) -> None:
        """Read and check the trace before any work starts."""
        super().prepare(entities)
        assert self._trace is not None
        values = self._trace.table.values
        if len(wrong := values[(values != 0) & (values != 1)]):
            rule, remedy = "must have no other values than 0 (away) and 1 (there)", "round them"
            raise InputError([Fault("trace", rule, float(wrong[0]), remedy)], "the trace")

    def at(self, moment: Moment) -> Cost:
        assert self._trace is not None
        return with_away(self._cost.at(moment), np.asarray(self._trace.at(moment, "availability") < 0.5))


@dataclass
class AvailableCompute(_Availability):
    """Computing at a cost while a client is there; while it is away it cannot compute.

    Attributes:
        trace: 1 while a client is there, 0 while it is away: a path, a list, or a table with a path.
        cost: of computing while it is there, by its kind or as a table.
    """

    trace: TraceTable
    cost: ComputeTable = "constant"

    def __post_init__(self) -> None:
        self._open(self.cost, self.trace, computing=True)


@dataclass
class AvailableMessage(_Availability):
    """Sending at a cost while a client is there; while it is away it sends nothing.

    Clients are away together for computing and for sending where both knobs have this kind with a trace of
    as many series: what is drawn for a client does not depend on the knob.

    Attributes:
        trace: 1 while a client is there, 0 while it is away: a path, a list, or a table with a path.
        cost: of sending while it is there, by its kind or as a table.
    """

    trace: TraceTable
    cost: MessageTable = "constant"

    def __post_init__(self) -> None:
        self._open(self.cost, self.trace, computing=False)
