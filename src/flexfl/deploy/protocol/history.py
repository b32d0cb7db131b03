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
    def stored(cls, most_bytes: int, kept: Mapping[str, bytes]) -> History:
        """As a store has it."""
        named = {name: value for name, value in kept.items() if name.startswith(_NAME)}
        return cls(most_bytes, {int(name.removeprefix(_NAME)): value for name, value in named.items()})

    def between(self, version: int, iteration: int) -> tuple[bytes, ...] | None:
        """The updates that lead from that version of the model to this one; None if one is not here."""
        wanted = range(version, iteration)
        if not all(number in self._updates for number in wanted):
            return None
        return tuple(self._updates[number] for number in wanted)

    def and_then(self, number: int, newest: bytes) -> tuple[History, dict[str, bytes | None]]:
        """With one more, and without those that are too many; also as changes of the store."""
        updates = self._updates | {number: newest}
        changes: dict[str, bytes | None] = {f"{_NAME}{number}": newest}
        size = 0
        for place, old in enumerate(sorted(updates, reverse=True)):
            size += len(updates[old])
            if size > self._most_bytes or place >= _MOST:
                del updates[old]
                changes[f"{_NAME}{old}"] = None
        return History(self._most_bytes, updates), changes
