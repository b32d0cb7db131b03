"""What a link carries besides the messages themselves, estimated from what a meter has counted.

In an iteration a link carries φ = ι + 𝟙[k > 0]·β + w·n bytes. n are the bytes of the message and w what a
full segment adds to each; ι flows anyway (an answer that says "nothing", acknowledgements, heartbeats) and β
with every message. Both are smoothed over what was counted: ι over iterations without a message, β over the
others.

What is charged is what was counted. A message is charged as estimated, since it is counted only after it was
sent; the difference is charged in the next iteration. So the charges since the beginning come to what the
meter has counted, and the estimate for the last message.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from flexfl.arrays import Count, FloatArray, Number
from flexfl.costs.linear import Affine

log = logging.getLogger("flexfl.costs")

Total = Callable[[], float | None]
"""Returns the bytes that a link has carried so far, which never fall; None while they cannot be read."""
SEGMENT = 1448
"""Bytes that a full TCP segment carries over Ethernet."""
SEGMENT_HEADERS = 66
"""Ethernet 14, IPv4 20, TCP 20 with time stamps 12."""
_PER_BYTE = 1.0 + SEGMENT_HEADERS / SEGMENT
_FIRST_IDLE, _FIRST_BETA = 300.0, 0.0
_SURPRISE, _SURPRISE_BYTES = 4.0, 256.0
"""A count moves an estimate as if it were at most so many times the estimate, and so much more: what a
connection costs that is made again is charged, but says nothing about the next message."""


@dataclass(frozen=True)
class AffineIdle(Affine):
    """φ = ι + δ + 𝟙[k > 0]·(β + γ·k): ι `idle` is paid whatever is decided, and so is δ `due`.

    ι comes back in every iteration; δ is what is left to pay of earlier ones, or was paid too much (then
    below 0, and φ at least 0). P3.2 and P3.3 have the closed form of `Affine`: constants do not move a
    minimum.
    """

    monotone: ClassVar[bool] = True
    idle: FloatArray
    due: FloatArray = field(default_factory=lambda: np.zeros(()))

    def __call__(self, amount: Number | Count) -> FloatArray:
        return np.maximum(0.0, super().__call__(amount) + self.idle + self.due)


class LinkBytes:
    """Bytes on a link: estimates, and what is still to be charged or was charged too much.

    Args:
        total: what the meter has counted.
        smoothing: of the estimates.

    Attributes:
        idle: ι.
        per_message: β, besides the bytes of the message.
        owed: counted and not charged yet; below 0, charged and not counted yet.
    """

    STATE: ClassVar[int] = 8
    """How many numbers its memory has."""

    def __init__(self, total: Total, smoothing: float) -> None:
        self._total, self._smoothing = total, smoothing
        self.idle, self.per_message, self.owed = _FIRST_IDLE, _FIRST_BETA, 0.0
        self._epoch = float(secrets.randbits(50))  # names the meter, which a state may be older than
        self._mark = 0.0  # what the meter had counted when it was last read
        self._assumed = 0.0  # charged since then for what it could not count
        self._sent: tuple[float, float] | None = None  # k and n of what was charged and not counted yet
        self._warned = False

    def look(self) -> None:
        """Read the meter, once before a decision."""
        total = self._total()
        if total is None:
            self._assume()
            return
        carried, self._mark = total - self._mark, total
        if self._sent is not None and not self._assumed:
            self._learn(carried, *self._sent)
        self.owed += carried - self._assumed
        self._assumed, self._sent = 0.0, None

    def _assume(self) -> None:
        """Take for counted what was expected."""
        if not self._warned:
            log.warning("the link's meter cannot be read: bytes on the link are estimated from now on")
        self._warned = True
        if self._sent is not None:
            expected = self.expected(*self._sent)
            self.owed += expected
            self._assumed += expected
            self._sent = None

    def _learn(self, carried: float, k: float, nbytes: float) -> None:
        overhead = max(0.0, carried - _PER_BYTE * nbytes)
        if k > 0:
            self.per_message = self._smoothed(self.per_message, max(0.0, overhead - self.idle))
        else:
            self.idle = self._smoothed(self.idle, overhead)

    def _smoothed(self, estimate: float, found: float) -> float:
        found = min(found, _SURPRISE * estimate + _SURPRISE_BYTES)
        return estimate + self._smoothing * (found - estimate)

    def expected(self, k: float, nbytes: float) -> float:
        """Return the bytes of an iteration in which a message of k components and `nbytes` is sent."""
        return self.idle + (self.per_message + _PER_BYTE * nbytes if k > 0 else 0.0)

    def bill(self, k: float, nbytes: float) -> float:
        """Return what is to be charged for an iteration: never less than 0."""
        return max(0.0, self.owed + self.expected(k, nbytes))

    def settle(self, k: float, nbytes: float) -> None:
        """Take note that the bill was charged."""
        self.owed -= self.bill(k, nbytes)
        self._sent = k, nbytes

    def cost(self, header: float, per_component: FloatArray) -> AffineIdle:
        """Return φ of this iteration, for messages of `header` + `per_component`·k bytes."""
        beta = np.asarray(self.per_message + _PER_BYTE * header)
        return AffineIdle(beta, _PER_BYTE * per_component, np.asarray(self.idle), np.asarray(self.owed))

    def state(self) -> FloatArray:
        k, nbytes = (-1.0, 0.0) if self._sent is None else self._sent
        known = [self.idle, self.per_message, self.owed, self._epoch, self._mark, self._assumed, k, nbytes]
        return np.array(known)

    def restore(self, state: FloatArray) -> None:
        self.idle, self.per_message, self.owed, epoch, mark, assumed, k, nbytes = map(float, state)
        self._sent = None if k < 0 else (k, nbytes)
        if epoch == self._epoch:
            self._mark, self._assumed = mark, assumed
        elif self._sent is not None:  # another process has sent it: this one's meter will not count it
            self.owed += self.expected(*self._sent)
            self._sent = None
