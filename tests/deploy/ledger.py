"""Whether anything was lost, from the disks alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flexfl.deploy.plan import STATE_FILE
from flexfl.deploy.protocol import SqliteStore
from flexfl.deploy.protocol.messages import ACCEPTED
from flexfl.deploy.protocol.store import unpack
from flexfl.models.build import build_model
from flexfl.models.flat import FlatModel
from flexfl.results import Run
from flexfl.spec.schema import parse
from flexfl.streams import Streams
from flexfl.wire import decode


def stored(path: Path) -> dict[str, bytes]:
    store = SqliteStore(path)
    try:
        return store.load()
    finally:
        store.close()


def ledger(run: Path, sites: Mapping[str, Path]) -> tuple[float, float]:
    """The largest component of x + r + Σ w·(e + in flight) − (x₀ + Σ w·steps), and how far x₀ has moved.

    run is the server's run directory with its state, sites the folders of the clients; they must have
    run with `deploy.ledger`.
    """
    import torch

    server = stored(run / STATE_FILE)
    known = json.loads(server["clients"])
    state = json.loads(server["state"])
    spec = parse(Run(run).spec)
    module = build_model(spec.model.name, spec.model.options, Streams(spec.train.seed))
    start = FlatModel(module, getattr(torch, spec.engine.dtype)).params.numpy().astype(np.float64)
    found = unpack(server["params"]).astype(np.float64) + unpack(server["residual"])
    expected = start.copy()
    for name, folder in sites.items():
        own, weight = stored(folder / f"{state['run']}.sqlite"), state["roster"][name]
        told = json.loads(own["state"])
        found += weight * unpack(own["residual"])
        expected += weight * unpack(own["steps"])
        if own["pending"] and known[name][:3] != [told["life"], told["number"], ACCEPTED]:
            found += weight * decode(own["pending"], len(start)).dense()
    return float(np.abs(found - expected).max()), float(np.abs(expected - start).max())
