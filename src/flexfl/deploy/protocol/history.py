"""The newest updates of the model, for clients that have missed some."""

from __future__ import annotations

from collections.abc import Mapping

from flexfl.wire.envelope import MOST_BLOBS

_MOST = MOST_BLOBS // 2
_NAME = "update/"


class History:
    """Updates by number, together no longer than the model (which is sent instead of more)."""

    def __init__(self, most_bytes: int, updates: Mapping[int, bytes] | None = None) -> None:
        self._most_bytes, self._updates = most_bytes, dict(updates or {})

    @classmethod
    def from_store(cls, most_bytes: int, values: Mapping[str, bytes]) -> History:
        """Return the history among the values of a store."""
        named = {name: value for name, value in values.items() if name.startswith(_NAME)}
        return cls(most_bytes, {int(name.removeprefix(_NAME)): value for name, value in named.items()})

    def since(self, version: int, iteration: int) -> tuple[bytes, ...] | None:
        """Return the updates from that version of the model to this one; None if one is missing."""
        wanted = range(version, iteration)
        if not all(number in self._updates for number in wanted):
            return None
        return tuple(self._updates[number] for number in wanted)

    def append(self, number: int, newest: bytes) -> tuple[History, dict[str, bytes | None]]:
        """Return the history with one more update and without those that are too many.

        Returns:
            The new history, and the changes of a store that lead to it.
        """
        updates = self._updates | {number: newest}
        changes: dict[str, bytes | None] = {f"{_NAME}{number}": newest}
        size = 0
        for place, old in enumerate(sorted(updates, reverse=True)):
            size += len(updates[old])
            if size > self._most_bytes or place >= _MOST:
                del updates[old]
                changes[f"{_NAME}{old}"] = None
        return History(self._most_bytes, updates), changes
