"""A cost with a memory: a channel that is good or bad for a while (Gilbert–Elliott).

    flexfl run quickstart --set costs.uplink.kind=examples.own_cost:TwoStateChannel

Each client's channel changes its state with a small probability. The state is a memory: checkpoints and a
deployed client's disk hold it through `state` and `restore`, so that a resumed run continues bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.costs import Affine
from flexfl.parameters import PerClientPositive, Share
from flexfl.state import State
from flexfl.streams import Moment


@dataclass
class TwoStateChannel:
    """A message costs `per_message`, the whole model 1 in the good state and `worse` times that in the bad.

    `factors` scales it by client; a list without PerClient in its type stays a list, whole at every client.
    """

    per_message: PerClientPositive = 0.05
    worse: PerClientPositive = 4.0
    change: Share = 0.1
    factors: list[float] = field(default_factory=lambda: [1.0])
    _bad: NDArray[Any] = field(default_factory=lambda: np.zeros((), dtype=bool), init=False)
    _next: int = field(default=0, init=False)

    def at(self, moment: Moment) -> Affine:
        """Return the cost of this iteration, after the changes since the last one."""
        self._bad = np.broadcast_to(self._bad, moment.shape)
        for iteration in range(self._next, moment.iteration + 1):  # a client may have missed some
            self._bad = self._bad ^ (moment.at(iteration).uniform("change") < self.change)
        self._next = moment.iteration + 1
        mine = np.asarray(self.factors)[moment.entities.numbers % len(self.factors)]
        gamma = np.where(self._bad, moment.pick(self.worse), 1.0) * mine / moment.dim
        return Affine(np.asarray(moment.pick(self.per_message), dtype=float), gamma)

    def state(self) -> State:
        """Return the memory."""
        return {"bad": np.asarray(self._bad), "next": np.array(self._next)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a memory."""
        self._bad, self._next = np.asarray(state["bad"], dtype=bool), int(state["next"])
