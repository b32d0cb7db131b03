"""How the conductor reaches the sites: messages by name, which may get lost, late or doubled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Link(Protocol):
    """The server's end of a transport; it vouches for the names of those who answer."""

    def send(self, messages: Mapping[str, bytes]) -> None:
        """Send each site its message, without waiting for anything."""
        ...

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        """What sites have sent, oldest first; waits so long if there is nothing yet."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether someone has asked for the run to end."""
        ...

    def traffic(self) -> tuple[int, int] | None:
        """Bytes that have really crossed the wire, up and down, with all that the transport adds."""
        ...
