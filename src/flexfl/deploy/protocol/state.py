"""What a server remembers between two iterations, and its form in a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.algorithm.steps import next_average
from flexfl.deploy.protocol.messages import Acknowledgement, ProtocolError
from flexfl.deploy.protocol.store import pack, pack_json, unpack

Vector = NDArray[Any]


@dataclass(frozen=True)
class ClientStatus:
    """What the server knows of a client.

    Attributes:
        acknowledgement: of its newest update.
        version: of its model.
        spent: its totals, by knob.
    """

    acknowledgement: Acknowledgement = field(default_factory=Acknowledgement)
    version: int = 0
    spent: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerState:
    """The state of a run between two iterations.

    Attributes:
        iteration: the one that is under way.
        params: x, (D,).
        residual: r, (D,).
        clients: the status of each, by name.
        average: x̄, (D,); None if it is not formed.
    """

    iteration: int
    params: Vector
    residual: Vector
    clients: dict[str, ClientStatus]
    average: Vector | None = None

    def after(self, params: Vector, residual: Vector, clients: dict[str, ClientStatus]) -> ServerState:
        """Return the state after the iteration that has led to these."""
        t, x_bar = self.iteration, self.average
        x_bar = None if x_bar is None else next_average(x_bar, params, t)
        return ServerState(t + 1, params, residual, clients, x_bar)

    @property
    def model(self) -> bytes:
        """What a client is sent that needs the whole model: x, and x̄ after it where that is formed."""
        x, x_bar = self.params, self.average
        return pack(x if x_bar is None else np.concatenate([x, x_bar]))

    def to_store(self, run: str, roster: Mapping[str, float]) -> dict[str, bytes]:
        """Return the state as the values of a store."""
        clients = {
            name: [known.life, known.number, known.outcome, status.version, status.spent]
            for name, status in self.clients.items()
            for known in [status.acknowledgement]
        }
        return {
            "state": pack_json({"run": run, "iteration": self.iteration, "roster": dict(roster)}),
            "clients": pack_json(clients),
            "params": pack(self.params),
            "residual": pack(self.residual),
            **({} if self.average is None else {"average": pack(self.average)}),
        }

    @classmethod
    def from_store(cls, values: Mapping[str, bytes], run: str, roster: Mapping[str, float]) -> ServerState:
        """Return the state in the values of a store.

        Raises:
            ProtocolError: it is the state of another run.
        """
        fields = json.loads(values["state"])
        if fields["run"] != run or fields["roster"] != roster:
            found = ", ".join(f"{name} ({weight:g})" for name, weight in fields["roster"].items())
            raise ProtocolError(f"the state is of {fields['run']} with other clients or weights: {found}")
        clients = {
            name: ClientStatus(Acknowledgement(life, number, outcome), version, spent)
            for name, (life, number, outcome, version, spent) in json.loads(values["clients"]).items()
        }
        x_bar = unpack(values["average"]) if "average" in values else None
        return cls(fields["iteration"], unpack(values["params"]), unpack(values["residual"]), clients, x_bar)
