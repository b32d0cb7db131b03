"""Sites in this process, and a link to them that does what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.deploy.conduct import conduct
from flexfl.deploy.plan import Plan
from flexfl.deploy.settings import SITE_FILE
from flexfl.deploy.site import Site
from flexfl.errors import FlexFLError
from flexfl.results.checkpoint import read_checkpoint
from flexfl.results.observer import Observer
from flexfl.results.store import MetricStore
from flexfl.spec.schema import parse


class Loop:
    """Every message arrives at once and is answered at once, unless `meddle` makes something else of it."""

    def __init__(
        self, folder: Path, names: list[str], meddle: Any = None, stop_after: int | None = None
    ) -> None:
        self.sites = {name: Site(name, folder / name) for name in names}
        self._meddle = meddle or (lambda name, data, answer: answer)
        self._came: list[tuple[str, bytes]] = []
        self._left = stop_after
        self.messages = 0
        self.complaints: list[str] = []

    def send(self, messages: Mapping[str, bytes]) -> None:
        for name, data in messages.items():
            if name not in self.sites:
                continue
            self.messages += 1
            if self._left is not None:
                self._left -= 1
            try:
                answer = self.sites[name].answer(data)
            except FlexFLError as error:
                self.complaints.append(str(error))
                continue
            answer = self._meddle(name, data, answer)
            if answer is not None:
                self._came.append((name, answer))

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        came, self._came = self._came, []
        return came

    @property
    def stopped(self) -> bool:
        return self._left is not None and self._left <= 0

    def traffic(self) -> None:
        return None

    def close(self) -> None:
        for site in self.sites.values():
            site.close()


def small_spec(clients: int = 4, **sections: Mapping[str, Any]) -> Any:
    given: dict[str, Any] = {
        "data": {"clients": clients, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "train": {"iterations": 50, "evaluate_every": 10},
        "budget": {"compute": 0.25, "uplink": 0.02, "downlink": 0.02},
        "record": {"clients": True},
        "deploy": {"deadline": 0.2, "wait": 1.0},
        "engine": {"threads": 1},
    }
    for name, section in sections.items():
        table = given.get(name, {}) | dict(section)
        given[name] = {key: value for key, value in table.items() if value is not None}
    return parse(given)


def lasting_spec(iterations: int, clients: int, dtype: str, **deploy: Any) -> Any:
    """For real processes: time for them to start, and a ledger."""
    return small_spec(
        clients,
        train={"iterations": iterations, "evaluate_every": 25},
        deploy={"wait": 60.0, "ledger": True} | deploy,
        engine={"dtype": dtype},
    )


def deploy(
    folder: Path,
    spec: Any,
    link: Loop | None = None,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
) -> Path:
    """Run it to the end, or until the link is stopped; returns the run directory."""
    plan = Plan.local("run", spec, resume=resume)
    loop = link or Loop(folder, list(plan.roster))
    try:
        conduct(plan.settings(), loop, folder / "server", observers)
    finally:
        loop.close()
    return folder / "server" / "run"


def allow_own_members(folder: Path) -> Path:
    """Let runs in that folder call what these tests bring along."""
    for number in range(4):
        site = folder / f"site-{number + 1}"
        site.mkdir(parents=True)
        (site / SITE_FILE).write_text('modules = ["deploy"]\nthreads = 1')
    return folder


def final_params(run: Path, name: str = "params") -> Any:
    """x at the end, or another vector."""
    store = MetricStore(run / "metrics.sqlite")
    found = store.checkpoint()
    store.close()
    assert found is not None
    return np.array(read_checkpoint(run / found[1], found[2])[name])
