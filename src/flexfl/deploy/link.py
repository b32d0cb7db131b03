"""The transport between server and sites: messages that may be lost, delayed or duplicated.

And what it costs: a `Meter` counts the bytes that really crossed the link, and `heartbeat_for` says how often
a client may be heard of for a share of its budget.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from flexfl.control.knobs import Sender

log = logging.getLogger("flexfl.deploy")

Counters = Callable[[], Mapping[Hashable, tuple[int, int]] | None]
"""Returns the bytes up and down of each open connection, by a name that no other connection has had; None if
they cannot be read."""
HEARTBEAT_BYTES = 800.0
"""What a heartbeat and its reply take on the link, both ways together (docs/howto/deploy.md)."""
_SHORTEST_HEARTBEAT, _LONGEST_HEARTBEAT = 2.0, 86400.0


class Link(Protocol):
    """The server's end of a transport; it authenticates the names of senders."""

    def send(self, messages: Mapping[str, bytes]) -> None:
        """Send each site its message, without waiting for delivery."""
        ...

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        """Return (site, message) pairs, oldest first; if there is none yet, wait up to `seconds`."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether a stop of the run has been requested."""
        ...

    def traffic(self) -> tuple[int, int] | None:
        """Return the bytes on the link, up and down, with all that transport adds; None if unknown."""
        ...


class Meter:
    """Bytes that the connections of this machine have carried, up and down, since the meter was made.

    They never fall. A connection that has ended keeps its last count; one whose count has wrapped or was set
    back adds nothing until it is counted again. While counters cannot be read there is no sample, and nothing
    is lost: the next sample has what was carried meanwhile, but for connections that have ended in between.

    Args:
        counters: reads the connections that are open.
        mine: whether what a connection has carried before the meter was made counts, too, by its name.
    """

    def __init__(self, counters: Counters, mine: Callable[[Hashable], bool] = lambda name: False) -> None:
        self._counters, self._lock, self._warned = counters, threading.Lock(), False
        found = counters()
        self.available = found is not None
        """Whether counters could be read when the meter was made."""
        self._last = dict(found or {})
        self._total = [0, 0]
        for name, counts in self._last.items():
            if mine(name):
                self._add(counts)

    def _add(self, counts: tuple[int, int]) -> None:
        self._total = [total + more for total, more in zip(self._total, counts, strict=True)]

    def sample(self) -> tuple[int, int] | None:
        """Return the bytes up and down; None if they cannot be read now."""
        with self._lock:
            found = self._counters()
            if found is None:
                if not self._warned:
                    log.warning("the bytes on the link cannot be read any more")
                self._warned = True
                return None
            for name, counts in found.items():
                before = self._last.get(name, (0, 0))
                self._add((max(0, counts[0] - before[0]), max(0, counts[1] - before[1])))
                self._last[name] = counts
            return self._total[0], self._total[1]

    def watch(self, seconds: float) -> None:
        """Sample from now on, in a thread, so that little is missed of a connection that ends."""

        def run() -> None:
            while True:
                time.sleep(seconds)
                self.sample()

        threading.Thread(target=run, daemon=True, name="meter").start()

    def up(self) -> float | None:
        """Return the bytes up."""
        found = self.sample()
        return None if found is None else float(found[0])

    def down(self) -> float | None:
        """Return the bytes down."""
        found = self.sample()
        return None if found is None else float(found[1])


def count_link(sender: Sender, total: Callable[[], float | None] | None) -> None:
    """Let a sender's cost count bytes on the link, if it does that and there is a meter.

    Args:
        sender: the uplink of one client, or the downlink.
        total: returns the bytes that its link has carried; None without a meter.
    """
    attach = getattr(sender.cost, "attach", None)
    if attach is None:
        return
    if total is None or total() is None:
        log.info("no meter of the link: costs.%s counts the bytes of messages", sender.role)
    else:
        attach(total)


def heartbeat_for(bytes_per_second: float, share: float = 0.1) -> float:
    """Return the seconds between two heartbeats that take a share of what a link may carry.

    Args:
        bytes_per_second: the budget, up and down together.
        share: of it for heartbeats.

    >>> round(heartbeat_for(50e6 / 2_629_800) / 60)  # minutes, of 50 MB a month
    7
    """
    if not bytes_per_second > 0 or not 0 < share <= 1:
        raise ValueError(f"a budget and a share must be > 0, got {bytes_per_second} and {share}")
    return min(_LONGEST_HEARTBEAT, max(_SHORTEST_HEARTBEAT, HEARTBEAT_BYTES / (share * bytes_per_second)))
