"""Runs on Ray, with two workers on this machine: the same results as in processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flexfl.errors import FlexFLError
from flexfl.experiments import Cell, Outcome, run_cells, run_cells_on_ray
from flexfl.experiments.on_ray import _run_task, _Task
from flexfl.experiments.ray_cluster import cluster, task_resources
from flexfl.results.run import Run
from flexfl.sim.run import simulate
from flexfl.spec.load import load_spec

SMALL = ["data.clients=10", "train.iterations=6", "train.evaluate_every=3"]
LONG = ["data.clients=10", "train.iterations=4000", "engine.checkpoint_every=20", "engine.threads=1"]
DRIVER = """
import faulthandler, json, sys
from pathlib import Path
from flexfl.experiments import Cell, run_cells_on_ray
from flexfl.spec.load import load_spec

faulthandler.dump_traceback_later(120, exit=True)

def tell(found):
    print(found.cell.name, found.state, found.iteration, flush=True)

seeds = [load_spec("quickstart", [*sys.argv[1:], f"train.seed={seed}"]) for seed in (1, 2, 3)]
cells = [Cell(str(spec.train.seed), spec, Path(str(spec.train.seed))) for spec in seeds]
outcomes = run_cells_on_ray(cells, cpus=2, resume=True, on_change=tell)
print(json.dumps([(found.state, found.error) for found in outcomes]))
"""
pytestmark = pytest.mark.xdist_group("ray")  # they share a cluster


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_worker_niceness", "0")  # beside other tests, they would wait
        # To whom joins it by RAY_ADDRESS, 127.0.0.1 would otherwise mean another address of this machine.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        with cluster(2) as ray:
            yield ray


def cell(folder: Path, name: str, *settings: str) -> Cell:
    return Cell(name, load_spec("quickstart", settings), folder / name)


def assert_same(one: Path, other: Path) -> None:
    for name, column in Run(other).iterations.items():
        np.testing.assert_array_equal(Run(one).iterations[name], column)
    for name in ("test_accuracy", "train_loss", "average_cost"):
        assert (Run(one).summary or {})[name] == (Run(other).summary or {})[name]


def test_the_same_numbers_as_in_processes_of_this_machine(ray: Any, tmp_path: Path) -> None:
    """Beside two that fail; the last leaves its threads open, which makes one on Ray."""
    states: list[tuple[str, str]] = []
    (tmp_path / "file").touch()
    cells = [
        cell(tmp_path / "file", "nowhere", *SMALL),
        cell(tmp_path / "ray", "steep", *SMALL, "train.learning_rate=1e30"),
        cell(tmp_path / "ray", "one", *SMALL, "train.seed=1", "engine.threads=1"),
        cell(tmp_path / "ray", "two", *SMALL, "train.seed=2"),
    ]
    outcomes = run_cells_on_ray(cells, on_change=lambda found: states.append((found.cell.name, found.state)))
    assert [found.cell for found in outcomes] == cells
    nowhere, steep, *good = outcomes
    assert nowhere.state == steep.state == "failed"
    assert "cannot be created" in nowhere.error
    assert re.match(r"the gradient of client \d+", steep.error)
    assert [(found.state, found.error, found.iteration) for found in good] == [("done", "", 6)] * 2
    assert {("one", "running"), ("one", "done"), ("two", "running"), ("two", "done")} <= set(states)
    here = [
        cell(tmp_path / "here", name, *SMALL, f"train.seed={seed}", "engine.threads=1")
        for seed, name in ((1, "one"), (2, "two"))
    ]
    assert [found.state for found in run_cells(here, jobs=2)] == ["done", "done"]
    for found, expected in zip(good, here, strict=True):
        assert found.summary == Run(found.cell.out).summary
        assert Run(found.cell.out).spec["engine"]["threads"] == 1
        assert_same(found.cell.out, expected.out)
    assert {path.name for path in (tmp_path / "ray").iterdir()} == {"steep", "one", "two"}
    assert {path.name for path in tmp_path.iterdir()} == {"file", "ray", "here"}


def test_stopped_twice_and_resumed_to_the_same_numbers(ray: Any, tmp_path: Path) -> None:
    """Ctrl-C, of the whole group, with a Ray of its own; SIGTERM on the cluster of RAY_ADDRESS."""
    for way, address in (("Ctrl-C", ""), ("SIGTERM", ray.get_runtime_context().gcs_address)):
        with subprocess.Popen(
            [sys.executable, "-c", DRIVER, *LONG],
            cwd=tmp_path,
            env={**os.environ, "RAY_ADDRESS": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            assert any(re.match(r"1 running [1-9]", line) for line in process.stdout), way
            if way == "SIGTERM":
                process.send_signal(signal.SIGTERM)
            else:
                os.killpg(process.pid, signal.SIGINT)
            printed, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
        states, texts = zip(*json.loads(printed.splitlines()[-1]), strict=True)
        assert states == ("stopped",) * 3
        assert re.match(r"stopped after iteration \d+ of 4000", texts[0])
    cells = [cell(tmp_path, seed, *LONG, f"train.seed={seed}") for seed in ("1", "2")]
    assert [found.state for found in run_cells_on_ray(cells, resume=True)] == ["done"] * 2
    simulate(cells[0].spec, out=tmp_path / "undisturbed")
    assert_same(cells[0].out, tmp_path / "undisturbed")
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2", "undisturbed"}  # the third never began


def test_a_lost_worker_is_replaced_once(ray: Any, tmp_path: Path) -> None:
    once, twice = (cell(tmp_path, name, *LONG) for name in ("lost-once", "lost-twice"))
    kill_after = {"lost-once": [25], "lost-twice": [25, 45]}  # each time after a checkpoint

    def kill(found: Outcome) -> None:
        name = found.cell.name
        if found.state == "running" and kill_after[name] and found.iteration > kill_after[name][0]:
            kill_after[name].pop(0)
            (worker,) = [
                int(path.parent.name)
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if path.read_bytes().startswith(f"ray::{name}".encode())
            ]
            os.kill(worker, signal.SIGKILL)

    goes_on, failed = run_cells_on_ray([once, twice], on_change=kill)
    assert kill_after == {"lost-once": [], "lost-twice": []}
    assert failed.state == "failed"
    assert failed.error.startswith("its worker was lost, for the second time: ")
    assert (goes_on.state, goes_on.error) == ("done", "")
    simulate(once.spec, out=tmp_path / "undisturbed")
    assert_same(once.out, tmp_path / "undisturbed")


def test_a_node_with_other_storage_is_refused(tmp_path: Path) -> None:
    """The marker file beside the runs is missing on that node."""
    task = _Task(0, cell(tmp_path, "one"), False, True, tmp_path / ".flexfl-marker", tmp_path)
    ended = _run_task(task, board=None)
    assert ended["state"] == "failed"
    assert "must be on storage that all nodes share" in ended["error"]
    assert list(tmp_path.iterdir()) == []


def test_a_task_asks_for_what_some_node_has(tmp_path: Path) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 8.0}},
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]

    def asked(*settings: str, nodes: list[dict[str, Any]] = nodes) -> tuple[float, float]:
        found = task_resources(cell(tmp_path, "one", *settings), False, nodes)
        return found["num_cpus"], found["num_gpus"]

    assert asked() == (1, 0)
    assert asked("engine.threads=6") == (6, 0)
    assert asked("engine.threads=16") == (8, 0)
    assert asked("engine.threads=6", 'engine.device="cuda"') == (4, 1)
    assert asked('engine.device="cuda"', nodes=nodes[:1]) == (1, 0)  # the run tells that there is none
    assert asked("engine.threads=6", nodes=[]) == (6, 0)


def test_without_ray_it_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FlexFLError, match=r"running on Ray needs ray.*pip install '\.\[ray\]'"):
        run_cells_on_ray([cell(tmp_path, "one")])
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_not_there(ray: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(
            FlexFLError, match=f"no Ray cluster can be joined at {address}.*check RAY_ADDRESS"
        ):
            run_cells_on_ray([cell(tmp_path, "one")])
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_from_the_command_line(tmp_path: Path) -> None:
    text = 'base = "quickstart"\nseeds = [1, 2]\nset.data.clients = 10\nset.train.iterations = 4\n'
    (tmp_path / "trial.toml").write_text(text)
    flexfl = Path(sys.executable).with_name("flexfl")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [flexfl, "sweep", "trial.toml", "--on", "ray", "--jobs", "2", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    summaries = json.loads(done.stdout)
    assert [found["iterations"] for found in summaries.values()] == [4, 4]
    assert sorted(path.name for path in (tmp_path / "runs/trial/trial").iterdir()) == ["seed-1", "seed-2"]
