"""The virtual clock of a simulation: how long iterations take, and who is late.

An iteration lasts   ℓ + min{deadline, max_n (computing_n + uplink_n)} + downlink   seconds: a round trip ℓ,
the slowest of those who are waited for, and one broadcast of the server's message, which all have received
before the next iteration begins. All decisions of an iteration are made at its beginning.

With a deadline it goes as between machines (`deploy.conductor`): the iteration ends without those who are
late. Their messages arrive in the iteration that is under way then, and nothing is lost. Who is late takes
no part until it is done, and is waited for again only when it has answered within the deadline; so a slow
client costs one deadline, not one in every iteration. Without anyone to wait for, the first answer ends an
iteration.

Deviation from a deployment: there, a late client is asked again at once and may take part in an iteration
that is under way; here it begins with the next one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import BoolArray, FloatArray, IntArray
from flexfl.control.knobs import Computing, Sending
from flexfl.costs.base import CostModel
from flexfl.counting import Counts, size_in
from flexfl.errors import CostError
from flexfl.state import State, restore_all, state_of
from flexfl.streams import Entities, Streams

_NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Timing:
    """What takes time in a simulated run; `start` makes its clock.

    Attributes:
        models: by knob, costs in seconds that are drawn for the clock only, from streams of its own.
        charged: the knobs whose own cost is the time.
        overhead: seconds of every iteration besides.
        deadline: the most seconds that an iteration waits for its clients.
        iteration: seconds of every iteration, whatever is done in it; None to go by the models.
    """

    models: Mapping[str, CostModel] = field(default_factory=dict)
    charged: Collection[str] = ()
    overhead: float = 0.05
    deadline: float = math.inf
    iteration: float | None = None
    seconds: float = 0.0

    def start(self, streams: Streams, clients: int, dim: int) -> VirtualClock:
        """Return the clock of a new run of N clients and D parameters."""
        return VirtualClock(self, streams, clients, dim)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """How the messages of an iteration reached the server.

    Attributes:
        late: the clients whose message of this iteration has not arrived, in ascending order.
        landed: the clients whose message of an earlier iteration has, in ascending order.
    """

    late: IntArray = field(default_factory=lambda: _NOBODY)
    landed: IntArray = field(default_factory=lambda: _NOBODY)


ON_TIME = Arrivals()


class VirtualClock:
    """Seconds since a simulated run began; called three times in each iteration.

        away = clock.begin(t)                     # who takes no part
        arrivals = clock.wait(computing, uplink)  # whose messages are there
        clock.advance(downlink)                   # the iteration is over

    Attributes:
        seconds: when this iteration began.
    """

    def __init__(self, timing: Timing, streams: Streams, clients: int, dim: int) -> None:
        self._timing, self._streams, self._dim = timing, streams, dim
        self._models = copy.deepcopy(dict(timing.models))  # they may have a memory
        self._clients, self._server = Entities.all_clients(clients), Entities.the_server()
        self.seconds, self._iteration, self._waited = timing.seconds, 0, 0.0
        self._away: BoolArray | None = None
        self._ones = np.ones(clients, dtype=np.int64)
        self._present = self._everyone = np.ones(clients, dtype=bool)
        self._times: dict[str, Any] = {}
        self._busy_until = np.zeros(clients)
        self._flying = np.zeros(clients, dtype=bool)  # whether that is because of a message on its way
        self._slow = np.zeros(clients, dtype=bool)  # who is no longer waited for

    def begin(self, iteration: int) -> BoolArray | None:
        """Draw the times of an iteration; return who takes no part in it, (N,), or None for nobody.

        Those are the clients that are still busy, and those for whom computing or sending would never end.
        """
        self._iteration = iteration
        if self._timing.iteration is not None:
            return None
        self._times = {
            knob: model.at(self._streams.moment(f"clock.{knob}", iteration, self._dim, who, self.seconds))
            for knob, model in self._models.items()
            for who in [self._server if knob == "downlink" else self._clients]
        }
        away = self._busy_until > self.seconds
        for knob in ("compute", "uplink"):
            if knob in self._times:
                away = away | np.isposinf(seconds_of(self._times[knob], self._ones, self._ones))
        some = bool(away.any())
        self._away, self._present = (away, ~away) if some else (None, self._everyone)
        return self._away

    def wait(self, computing: Computing, uplink: Sending) -> Arrivals:
        """Wait for the clients, as long as the deadline allows; return what has arrived then."""
        timing = self._timing
        if timing.iteration is not None:
            return ON_TIME
        computed, k = computing.computed.astype(np.int64), uplink.components
        taken = self._seconds("compute", computed, computed, computing.spent)
        taken = taken + self._seconds("uplink", k, uplink.nbytes, uplink.charged)
        if math.isinf(timing.deadline):
            self._waited = float(np.max(taken, initial=0.0, where=self._present))
            return ON_TIME
        start = self.seconds + timing.overhead
        self._waited = self._wait(taken, start)
        landed = np.flatnonzero(self._flying & (self._busy_until <= start + self._waited))
        self._flying[landed] = False
        late = self._present & (taken > self._waited)
        self._busy_until = np.where(late, start + taken, self._busy_until)
        sent = late & (k > 0)
        self._flying |= sent
        self._slow = (self._slow | late) & ~(self._present & (taken < timing.deadline))
        return Arrivals(np.flatnonzero(sent), landed)

    def _wait(self, taken: FloatArray, start: float) -> float:
        """Return how long the server waits: for all it expects, or else for the first answer."""
        expected = self._present & ~self._slow
        if expected.any():
            return min(self._timing.deadline, float(taken[expected].max()))
        busy = self._busy_until[self._busy_until > self.seconds]
        answers = np.concatenate([taken[self._present], np.maximum(0.0, busy - start)])
        return min(self._timing.deadline, float(answers.min(initial=np.inf)))

    def advance(self, downlink: Sending) -> None:
        """End the iteration, when the server's message has reached the clients."""
        fixed = self._timing.iteration
        if fixed is not None:
            self.seconds += fixed
            return
        took = self._seconds("downlink", downlink.components, downlink.nbytes, downlink.charged)
        self.seconds += self._timing.overhead + self._waited + float(took)

    def _seconds(self, knob: str, amount: IntArray, nbytes: IntArray, charged: FloatArray) -> FloatArray:
        """Return how long each decision took: as drawn for the clock, as charged, or no time at all."""
        if knob not in self._times:
            return charged if knob in self._timing.charged else np.zeros(np.shape(amount))
        found = np.asarray(np.broadcast_to(self._timed(knob, amount, nbytes), np.shape(amount)))
        if knob != "downlink" and self._away is not None:
            found = np.where(self._away, 0.0, found)
        if found.size and not (found.min() >= 0 and found.max() < np.inf):  # NaN is neither
            place = int(np.flatnonzero(~(np.isfinite(found) & (found >= 0)))[0])
            who = self._server if knob == "downlink" else self._clients
            raise CostError(f"clock.{knob}", who.name(place), float(found.flat[place]), self._iteration)
        return found

    def _timed(self, knob: str, amount: IntArray, nbytes: IntArray) -> FloatArray:
        counts: Counts = getattr(self._models[knob], "counts", "components")
        return seconds_of(self._times[knob], amount, nbytes, counts)

    def state(self) -> State:
        return {
            "seconds": np.array([self.seconds]),
            "busy_until": self._busy_until,
            "flying": self._flying,
            "slow": self._slow,
        } | state_of(**self._models)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore_all({name: array for name, array in state.items() if "." in name}, **self._models)
        if np.size(state["slow"]) != self._slow.size:
            raise ValueError(f"clock.slow must have {self._slow.size} numbers, got {np.size(state['slow'])}")
        self.seconds = float(state["seconds"][0])
        self._busy_until = np.array(state["busy_until"], dtype=float)
        self._flying, self._slow = (np.array(state[name], dtype=bool) for name in ("flying", "slow"))


def seconds_of(time: Any, amount: IntArray, nbytes: IntArray, counts: Counts = "components") -> FloatArray:
    """Return the seconds of decisions: by their bytes where the time goes by these, else by the amount."""
    by_bytes = getattr(time, "of_bytes", None)
    size = size_in(counts, amount, nbytes)
    with np.errstate(invalid="ignore"):
        found: FloatArray = by_bytes(amount, nbytes) if by_bytes else np.asarray(time(size))
    if np.isnan(found).any():
        found = np.where(np.isnan(found) & (amount == 0), 0.0, found)  # ∞·0 of those who are away
    return found
