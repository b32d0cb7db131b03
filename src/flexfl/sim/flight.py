"""Messages of late clients, on their way to the server; `control.timing` says when they arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flexfl.arrays import FloatArray, IntArray
from flexfl.state import State


class InFlight:
    """At most one message v of each client, by its places and values; of D parameters."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._messages: dict[int, tuple[IntArray, NDArray[Any]]] = {}

    def launch(self, client: int, message: NDArray[Any]) -> None:
        """Keep a message, (D,), until it lands."""
        places = np.flatnonzero(message)
        self._messages[client] = places, message[places].copy()

    def land(self, clients: IntArray, weights: FloatArray, total: Any) -> None:
        """Add Σ w·v of these clients' messages to `total`, an array or tensor (D,)."""
        for client in clients.tolist():
            places, values = self._messages.pop(client)
            added = weights[client] * values.astype(np.float64)
            if isinstance(total, np.ndarray):
                total[places] += added
            else:
                where = torch.from_numpy(places).to(total.device)
                before = total[where].cpu().numpy()
                total[where] = torch.from_numpy((before + added).astype(values.dtype)).to(total.device)

    def total(self, weights: FloatArray) -> FloatArray:
        """Return Σ w·v of all that is on its way, (D,)."""
        found = np.zeros(self._dim)
        for client, (places, values) in self._messages.items():
            found[places] += weights[client] * values.astype(np.float64)
        return found

    def state(self) -> State:
        kept = self._messages.values()
        return {
            "clients": np.array(list(self._messages), dtype=np.int64),
            "lengths": np.array([len(places) for places, _ in kept], dtype=np.int64),
            "places": np.concatenate([np.zeros(0, dtype=np.int64), *(places for places, _ in kept)]),
            "values": np.concatenate([values for _, values in kept] or [np.zeros(0)]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        ends = np.cumsum(state["lengths"])[:-1]
        places, values = (np.split(state[name], ends) for name in ("places", "values"))
        clients = state["clients"].tolist()
        self._messages = dict(zip(clients, zip(places, values, strict=True), strict=True)) if clients else {}
