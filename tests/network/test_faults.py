"""kill -9 of a whole client and of the server in the middle of training: it goes on, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.in_memory import deploy, final_params, lasting_spec
from deploy.ledger import ledger
from deploy.processes import kill_at, kill_family, sites
from flexfl.deploy.demo import Federation, federation
from flexfl.deploy.nvflare.kits import ADMIN, SERVER
from flexfl.deploy.nvflare.processes import Process, wait_for_port
from flexfl.deploy.nvflare.session import session
from flexfl.deploy.plan import Plan
from flexfl.results import Run
from flexfl.results.observer import Live

pytestmark = pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning")

NAMES = ["site-1", "site-2", "site-3"]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Federation]:
    with federation(tmp_path / "kits", 3) as processes:
        yield processes


def spec_of(iterations: int, deadline: float = 2.0) -> Any:
    return lasting_spec(iterations, 3, "float64", deadline=deadline)


def accuracy(run: Path) -> float:
    return float(np.mean(Run(run).evaluations["test_accuracy"][-10:]))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the runs below would have given, over a link in memory; a simulation gives the same."""
    return deploy(tmp_path_factory.mktemp("undisturbed"), spec_of(600))


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deploy(tmp_path_factory.mktemp("longer"), spec_of(1500))


def test_a_whole_client_that_is_killed_rejoins_when_it_is_started_again(
    three: Federation, longer: Path
) -> None:
    three.submit(Plan.local("client", spec_of(1500)))
    kill_at(three, "client", 100, three.clients["site-2"].pid, kill_family)
    back = Process(three.folder / "site-2")
    try:
        live = three.watch("client")
        assert live.more["state"] == "finished", live
    finally:
        back.stop()
    run = three.server_folder / "client"
    there = Run(run).clients["compute_prob"][:, 1] > 0
    assert there[:100].all()
    assert not there.all()  # it was away
    assert there[-1]  # and is back
    balance, moved = ledger(run, sites(three))
    assert moved > 0.1
    assert balance < 1e-10
    assert abs(accuracy(run) - accuracy(longer)) < 0.05


def test_a_server_that_is_killed_resumes_where_it_was(three: Federation, undisturbed: Path) -> None:
    spec = spec_of(600, deadline=30.0)
    three.submit(Plan.local("server", spec))
    kill_at(three, "server", 150, three.server.pid, kill_family)
    back = Process(three.folder / SERVER)
    try:
        wait_for_port(three.project.server, three.project.port, back)
        with session(three.folder / ADMIN, 60.0) as admin:
            while set(admin.clients()) != set(NAMES):
                time.sleep(0.2)
            plan = Plan("server", spec, dict.fromkeys(NAMES, 1 / 3), resume=True, threads=1)
            admin.submit("server", plan.settings(), NAMES)
            live = _wait(three, "server")
        assert live.more["state"] == "finished", live
        run = three.server_folder / "server"
        assert ledger(run, sites(three))[0] < 1e-10
    finally:
        back.stop()
    # Nobody had missed an iteration, so it is the very run that it would have been.
    np.testing.assert_array_equal(final_params(run), final_params(undisturbed))
    assert len(Run(run).iterations["iteration"]) == 600


def _wait(processes: Federation, name: str) -> Live:
    end = time.monotonic() + 240
    path = processes.server_folder / f"{name}.live.json"
    while time.monotonic() < end:
        live = Live.read(path)
        if live is not None and live.more["state"] in ("finished", "failed"):
            return live
        time.sleep(0.2)
    raise AssertionError(f"{name} did not end: {Live.read(path)}")
