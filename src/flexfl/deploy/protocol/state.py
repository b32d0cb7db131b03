"""What a server remembers between two iterations, and how it lies in a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from flexfl.deploy.protocol.messages import Fate, ProtocolError
from flexfl.deploy.protocol.store import packed, plain, unpacked

Vector = NDArray[Any]


@dataclass(frozen=True)
class Known:
    """Of a client: the fate of its newest update, its model's version, what it has spent."""

    fate: Fate = field(default_factory=Fate)
    version: int = 0
    spent: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """Of a run."""

    iteration: int
    params: Vector  # x
    residual: Vector  # r
    known: dict[str, Known]

    def values(self, run: str, roster: Mapping[str, float]) -> dict[str, bytes]:
        """As a store has it."""
        clients = {
            name: [known.fate.life, known.fate.number, known.fate.what, known.version, known.spent]
            for name, known in self.known.items()
        }
        return {
            "state": plain({"run": run, "iteration": self.iteration, "roster": dict(roster)}),
            "clients": plain(clients),
            "params": packed(self.params),
            "residual": packed(self.residual),
        }

    @classmethod
    def stored(cls, kept: Mapping[str, bytes], run: str, roster: Mapping[str, float]) -> State:
        """What was kept, if it is of this run."""
        told = json.loads(kept["state"])
        if told["run"] != run or told["roster"] != roster:
            there = ", ".join(f"{name} ({weight:g})" for name, weight in told["roster"].items())
            raise ProtocolError(f"the state is of {told['run']} with other clients or weights: {there}")
        known = {
            name: Known(Fate(life, number, what), version, spent)
            for name, (life, number, what, version, spent) in json.loads(kept["clients"]).items()
        }
        return cls(told["iteration"], unpacked(kept["params"]), unpacked(kept["residual"]), known)
