"""Random schedules of faults: after each event, nothing is lost and nothing counts twice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from faults.world import Log, World
from flexfl.deploy.protocol import Client, Server
from flexfl.deploy.protocol.messages import Acknowledgement, Question

SCHEDULES = int(os.environ.get("FLEXFL_SCHEDULES", "2000"))
BLOCKS = 20
EVENTS = 120


def live(world: World) -> World:
    world.run(EVENTS)
    world.heal()
    return world


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_ledger_holds_after_every_event(block: int) -> None:
    """A failing seed is in the message: World(seed) repeats it."""
    for seed in range(block, SCHEDULES, BLOCKS):
        live(World(seed))


def test_a_seed_repeats_its_schedule() -> None:
    one, other = (live(World(7)) for _ in range(2))
    assert one.server.disk.synced == other.server.disk.synced
    assert {name: machine.disk.synced for name, machine in one.clients.items()} == {
        name: machine.disk.synced for name, machine in other.clients.items()
    }


# Broken on purpose: the world must notice ---------------------------------------------------------


class LateLog(Log):
    """Commits what it was given only when the next comes: after the answer has left."""

    def __init__(self, disk: Any) -> None:
        super().__init__(disk)
        self._waits: Mapping[str, bytes | None] | None = None

    def commit(self, changes: Mapping[str, bytes | None]) -> None:
        if self._waits is not None:
            super().commit(self._waits)
        self._waits = changes


class Forgetful(Client):
    """Takes for granted that its last update was accepted."""

    def answer(self, data: bytes) -> bytes | None:
        known = Acknowledgement(self._state.life, self._state.number)
        return super().answer(replace(Question.decode(data), acknowledgement=known).encode())


class Amnesiac(Client):
    """Comes back with the knobs of a new client."""

    def _restore(self, stored: dict[str, bytes]) -> None:
        fresh = self.trainer.state()
        super()._restore(stored)
        self.trainer.restore(fresh)


class Silent(Server):
    """Never acknowledges an update."""

    def _question(self, name: str) -> Question:
        return replace(super()._question(name), acknowledgement=Acknowledgement())


class Credulous(Server):
    """Accepts every update, as often as it comes."""

    def _receive_update(self, sender: str, answer: Any, status: Any) -> None:
        before = replace(status.acknowledgement, number=answer.number - 1)
        super()._receive_update(sender, answer, replace(status, acknowledgement=before))


class Unsynced(Log):
    """Writes, but does not wait for the disk."""

    def commit(self, changes: Mapping[str, bytes | None]) -> None:
        disk = self.disk
        sync, disk.sync = disk.sync, lambda: None  # type: ignore[method-assign]
        try:
            super().commit(changes)
        finally:
            disk.sync = sync  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "broken",
    [
        {"make_store": LateLog},
        {"make_store": Unsynced},
        {"make_client": Forgetful},
        {"make_client": Amnesiac},
        {"make_server": Silent},
        {"make_server": Credulous},
    ],
    ids=lambda broken: next(iter(broken.values())).__name__,
)
def test_a_broken_protocol_is_caught(broken: dict[str, Any]) -> None:
    def search() -> None:
        for seed in range(300):
            live(World(seed, **broken))

    with pytest.raises(AssertionError, match="seed"):
        search()
