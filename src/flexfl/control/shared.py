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
from flexfl.control.joint import JointQueues
from flexfl.control.policy import ComputeRule, SendRule
from flexfl.state import State, restore_all, state_of

CHARGED = {"compute": "compute_cost", "uplink": "uplink_cost"}
"""What a client reports of its knobs: the metrics that their queues are charged."""
JOINT = "joint."
"""A client reports what it charges to a joint budget as "joint.NAME"."""


class SharedQueues:
    """The server's side of shared queues.

    Args:
        rules: of all clients, by knob, for knobs with a shared budget; they are charged, and decide nothing.
        members: the queue of each client, by knob, (N,).
        joint: the queues of joint budgets.
    """

    def __init__(
        self,
        rules: Mapping[str, ComputeRule | SendRule],
        members: Mapping[str, IntArray],
        joint: JointQueues,
    ) -> None:
        self._rules, self.joint = dict(rules), joint
        self._together = {knob: np.bincount(place)[place] > 1 for knob, place in members.items()}

    def lengths(self, client: int) -> dict[str, float]:
        """Return the queues that a client decides against and does not keep itself, by knob and name."""
        found = {}
        for knob, rule in self._rules.items():
            pressure = np.broadcast_to(rule.pressure, len(self._together[knob]))[client]
            if self._together[knob][client] and np.isfinite(pressure):  # NaN of a rule without queues
                found[knob] = float(pressure)
        for name, budget in self.joint.budgets.items():
            if not budget.is_local and (queue := int(budget.members[client])) >= 0:
                found[name] = float(self.joint.queues[name].length[queue])
        return found

    def close(self, charged: Mapping[str, FloatArray]) -> None:
        """End an iteration.

        Args:
            charged: what each client reports, (N,), by metric.
        """
        for knob, rule in self._rules.items():
            rule.charge(charged[CHARGED[knob]])
        for name, budget in self.joint.budgets.items():
            self.joint.charge(name, budget.members, charged[JOINT + name])
        self.joint.close()

    @property
    def metrics(self) -> list[str]:
        """The metrics that `close` needs."""
        return [CHARGED[knob] for knob in self._rules] + [JOINT + name for name in self.joint.budgets]

    def state(self) -> State:
        return state_of(**self._rules, joint=self.joint)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all(state, **self._rules, joint=self.joint)
