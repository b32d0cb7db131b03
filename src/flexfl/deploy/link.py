"""The transport between server and sites: messages that may be lost, delayed or duplicated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


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
        """Return the bytes on the wire, up and down, with the transport's overhead; None if unknown."""
        ...
