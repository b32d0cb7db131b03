"""A server and clients as real processes over mutual TLS: the same as a simulation, and after a kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deploy.in_memory import final_params, lasting_spec
from deploy.ledger import ledger
from deploy.processes import job_process, kill_at, kill_one, sites, wait_until
from flexfl.deploy.demo import Federation, federation
from flexfl.deploy.plan import Plan
from flexfl.results import Run
from flexfl.sim.run import simulate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("deploy"),
    pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning"),  # in NVFlare
]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with federation(tmp_path_factory.mktemp("kits"), 4) as processes:
        yield processes


def test_deployment_is_simulation(four: Federation, tmp_path: Path) -> None:
    spec = lasting_spec(50, 4, "float32", deadline=30.0)
    four.submit(Plan.local("same", spec))
    live = four.watch("same")
    assert live.more["state"] == "finished", live
    simulated = simulate(spec, out=tmp_path / "simulated")
    ours = four.server_folder / "same"
    np.testing.assert_allclose(final_params(ours), simulated.params, rtol=0, atol=1e-5)
    for name in ("computed", "uplink_components"):
        np.testing.assert_array_equal(Run(ours).clients[name], simulated.run.clients[name])
    assert live.more["wire_bytes"]["up"] > live.more["payload_bytes"]["up"] > 0
    assert ledger(ours, sites(four))[0] < 1e-5


def test_a_client_process_that_is_killed_comes_back_and_nothing_is_lost(four: Federation) -> None:
    job = four.submit(Plan.local("killed", lasting_spec(100_000, 4, "float32", deadline=2.0)))
    kill_at(four, "killed", 60, lambda: job_process(four.clients["site-2"].pid, job), kill_one)
    away = wait_until(four, "killed", lambda live: "site-2" not in live.more["present"])
    back = wait_until(four, "killed", lambda live: "site-2" in live.more["present"])
    assert back.iteration > away.iteration  # the others went on meanwhile
    wait_until(four, "killed", lambda live: live.iteration > back.iteration + 20)
    four.admin.abort(job)
    assert four.watch("killed").more["state"] == "stopped"
    run = four.server_folder / "killed"
    there = Run(run).clients["compute_prob"][:, 1] > 0
    assert there[:60].any()
    assert not there.all()
    balance, moved = ledger(run, sites(four))
    assert moved > 0.1
    assert balance < 1e-4
