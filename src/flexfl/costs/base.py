"""The protocol of costs: one object plans and charges.

A `CostModel` describes how a cost varies with entity and time. Asked in one iteration, it returns a `Cost`,
a function of the decision for every entity at once. The controller minimises with that function and the
queue is charged by the same function, so what was planned is what is paid.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flexfl.arrays import Count, FloatArray, Number
from flexfl.streams import Moment


@runtime_checkable
class Cost(Protocol):
    """The cost of a decision in one iteration.

    `amount` is q in [0, 1] for computing, or the size of a message for sending: k, how many components, or
    what the cost model's `counts` says. Its last axes are the
    entities'; axes in front of them are candidates that are weighed against each other. cost(0) is what
    doing nothing costs, cost(1) of a computing cost what computing with certainty costs.

    A cost may have an attribute `monotone`: True says that it never falls as the amount grows, which makes
    the search for the best decision much faster. A cost of computing may have `breakpoints`, an
    array of the q at which it jumps, which the search then tries.

    A cost may be infinite for those who cannot compute or send in this iteration. A cost of sending then has
    `away`, who that is: they send nothing, whatever the rule decides; `present` is the cost without that
    (`flexfl.costs.available`).
    """

    def __call__(self, amount: Number | Count) -> FloatArray: ...


@runtime_checkable
class CostModel(Protocol):
    """How a cost varies with entity and time.

    Optional besides:

    - `counts`, for a cost of sending: what its amount is, "components" by default (`flexfl.counting`);
    - `unit`, what it is counted in (`flexfl.units.COST_UNITS`); without it, the paper's abstract costs;
    - `mean_cost`, the expected cost of one computation, from which the randomised baseline sets its
      probability;
    - `observe(amount, cost)`, for a cost that is measured: called with what was done and what it cost, for
      messages their bytes;
    - `bill(amount, nbytes)`, for a measured cost of messages that charges something else than their bytes;
    - `attach(total)`, for one that charges the bytes on the link (`costs.link`);
    - `state()` and `restore(state)`, for a cost with a memory (`flexfl.state`);
    - `prepare(entities)`, for a cost that reads files: called before any work starts, it raises an
      `InputError` for what is wrong with them; and `contents`, a text that tells apart what was read, which
      is a part of the run's identity.
    """

    def at(self, moment: Moment) -> Cost: ...


@runtime_checkable
class Measured(Protocol):
    """A cost model that learns from what decisions really cost."""

    def at(self, moment: Moment) -> Cost: ...
    def observe(self, amount: Number | Count, cost: Number) -> None: ...
