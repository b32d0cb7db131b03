"""The queues that a server keeps for its clients, of budgets that they share with each other or with it.

In a simulation all entities look at one queue. Between machines the server keeps it, as the paper proposes:
it sends each client the length that the client decides against, and charges what clients report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray
from flexfl.clock import Clock
from flexfl.control.allowance import Allowance
from flexfl.control.joint import JointQueues
from flexfl.control.policy import ComputeRule, SendRule
from flexfl.control.price import LogPrice
from flexfl.state import State, restore_all, state_of

CHARGED = {"compute": "compute_cost", "uplink": "uplink_cost"}
"""What a client reports of its knobs: the metrics that their queues are charged."""
SPENT = {"compute": "compute_spent", "uplink": "uplink_cost"}
"""The metrics that are taken off what is left."""
JOINT, JOINT_SPENT = "joint.", "joint_spent."
"""A client reports what it charges to a joint budget as "joint.NAME", and what it has spent."""
ANSWERED = "answered"
"""Whether each client has reported in this iteration."""
FIRST, LEFT = ".first", ".left"
"""A client reports "KNOB.first", the logarithm of the price it begins with, and is sent "KNOB.left"."""


class SharedQueues:
    """The server's side of shared queues and prices.

    Args:
        rules: of all clients, by knob, for knobs with a shared budget, with their allowances; they are
            charged, and decide nothing.
        members: the queue of each client, by knob, (N,).
        joint: the queues of joint budgets.
        clock: of the run.
    """

    def __init__(
        self,
        rules: Mapping[str, tuple[ComputeRule | SendRule, Allowance | None]],
        members: Mapping[str, IntArray],
        joint: JointQueues,
        clock: Clock,
    ) -> None:
        self._rules = {knob: rule for knob, (rule, _) in rules.items()}
        self._allowances = {knob: own for knob, (_, own) in rules.items() if own is not None}
        self.joint, self._clock, self._opened = joint, clock, -1
        self._together = {knob: np.bincount(place)[place] > 1 for knob, place in members.items()}
        self._members = dict(members)
        hard = {knob: own for knob, own in self._allowances.items() if own.hard}
        hard |= {name: own for name, own in joint.allowances.items() if own.hard and self._is_shared(name)}
        self._hard = hard
        clients = max([0, *map(len, members.values()), *(len(one.members) for one in joint.budgets.values())])
        self._offered = {name: np.zeros(clients) for name in hard}  # in this iteration
        self._granted = {name: np.zeros(clients) for name in hard}  # before it, and not reported yet

    def _is_shared(self, name: str) -> bool:
        return not self.joint.budgets[name].is_local

    def open(self, iteration: int) -> None:
        """Begin an iteration; one that is open stays as it is."""
        if iteration != self._opened:
            self._opened, seconds = iteration, self._clock.seconds
            for allowance in self._allowances.values():
                allowance.open(iteration, seconds)
            self.joint.open(iteration, seconds)

    def lengths(self, client: int) -> dict[str, float]:
        """Return what a client decides against and does not keep itself, by knob and name.

        These are queues or prices, and for hard budgets "NAME.left", what it may spend at most.
        """
        found = {}
        for knob, rule in self._rules.items():
            if self._together[knob][client]:
                price = getattr(rule, "queue", None)  # a client applies the learning rate's factor itself
                pressure = price.price if isinstance(price, LogPrice) else rule.pressure
                found[knob] = float(np.broadcast_to(pressure, len(self._together[knob]))[client])
                if (allowance := self._allowances.get(knob)) is not None:
                    found[knob + LEFT] = self._grant(knob, client, float(allowance.left_each[client]))
        for name, budget in self.joint.budgets.items():
            if not budget.is_local and (queue := int(budget.members[client])) >= 0:
                found[name] = float(self.joint.queues[name].pressure[queue])
                left = float(self.joint.allowances[name].left_each[queue])
                found[name + LEFT] = self._grant(name, client, left)
        # NaN of a rule without queues or of a price that has not begun; ∞ of a budget that is not hard.
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def _grant(self, name: str, client: int, left: float) -> float:
        """Return what a client may spend at most in each of its decisions: nothing until it has reported.

        Who is late may have spent what it was granted. That stays reserved, and it is granted nothing more,
        so that together they never exceed a hard budget.
        """
        if name not in self._hard:
            return left
        grant = 0.0 if self._granted[name][client] > 0 else left
        decisions = 1 if name in self._rules else len(self.joint.budgets[name].costs.keys() - {"downlink"})
        self._offered[name][client] = grant * decisions
        return grant

    def _settle(self, answered: FloatArray) -> None:
        """Reserve what those who have not answered were granted."""
        for name, own in self._hard.items():
            unsettled = self._granted[name] + self._offered[name]
            self._granted[name] = np.where(np.asarray(answered, dtype=bool), 0.0, unsettled)
            self._offered[name] = np.zeros(len(unsettled))
            self._reserve(name, own)

    def _reserve(self, name: str, own: Allowance) -> None:
        place = self._members[name] if name in self._rules else self.joint.budgets[name].members
        reserved = np.zeros(own.limits.shape)
        np.add.at(reserved, place[place >= 0], self._granted[name][place >= 0])
        own.reserved = reserved

    def close(self, reports: Mapping[str, FloatArray]) -> None:
        """End an iteration.

        Args:
            reports: what each client reports, (N,), by the names of `metrics` and `firsts`; and `ANSWERED`.
        """
        self._settle(reports[ANSWERED])
        for knob, rule in self._rules.items():
            if isinstance(price := getattr(rule, "queue", None), LogPrice):
                price.take_over(reports[knob + FIRST])
            rule.charge(reports[CHARGED[knob]])
            if (allowance := self._allowances.get(knob)) is not None:
                allowance.spend(reports[SPENT[knob]])
        for name, budget in self.joint.budgets.items():
            self.joint.charge(name, budget.members, reports[JOINT + name])
            self.joint.spend(name, budget.members, reports[JOINT_SPENT + name])
        self.joint.close()

    @property
    def metrics(self) -> list[str]:
        """The metrics that `close` needs of costs."""
        knobs = [metric for knob in self._rules for metric in (CHARGED[knob], SPENT[knob])]
        joint = [kind + name for name in self.joint.budgets for kind in (JOINT, JOINT_SPENT)]
        return list(dict.fromkeys(knobs + joint))

    @property
    def firsts(self) -> list[str]:
        """The metrics that `close` needs of prices; NaN for a client that does not begin."""
        return [knob + FIRST for knob in self._rules]

    def state(self) -> State:
        granted = {f"granted.{name}": amounts for name, amounts in self._granted.items()}
        return state_of(**self._memories) | granted

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, **self._memories)
        self._opened = -1
        for name, own in self._hard.items():
            self._granted[name] = np.array(state[f"granted.{name}"], dtype=float)
            self._offered[name] = np.zeros(len(self._granted[name]))
            self._reserve(name, own)

    @property
    def _memories(self) -> dict[str, object]:
        allowances = {f"left_{knob}": own for knob, own in self._allowances.items()}
        return {**self._rules, **allowances, "joint": self.joint, "clock": self._clock}
