"""The command as a person runs it, in processes of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal
from safetensors.numpy import load_file

from flexfl.results import Run
from flexfl.results.checkpoint import read_checkpoint
from flexfl.results.store import MetricStore

FLEXFL = str(Path(sys.executable).parent / "flexfl")
SMALL = ["--set", "data.clients=20", "--set", "engine.threads=1", "--set", "train.evaluate_every=5"]

# A model in the person's own folder; SLOW makes sure that an interrupt comes before the end.
OWN = """
import os, time
from torch import nn
from flexfl.models.networks import mlp

class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = mlp(hidden=hidden)

    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        return self.net(x)

def net(hidden=8):
    return Net(hidden)
"""
OWN_RUN = [*SMALL, "--set", "model.name=own_model:net", "--set", "model.options.hidden=5"]


def flexfl(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FLEXFL, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def iterations(count: int) -> list[str]:
    return ["--set", f"train.iterations={count}"]


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a command that was refused: exit code 2, words, no traceback."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("flexfl: ")
    return done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def last_checkpoint(run: Path) -> dict[str, np.ndarray]:
    (path,) = run.glob("checkpoint-*.safetensors")
    return load_file(path)


def assert_same_state(run: Path, other: Path) -> None:
    """Bit for bit; only the time they took differs."""
    found, expected = last_checkpoint(run), last_checkpoint(other)
    assert set(found) == set(expected)
    for name in set(expected) - {"seconds"}:
        assert found[name].dtype == expected[name].dtype
        assert found[name].tobytes() == expected[name].tobytes(), name


def assert_same_metrics(run: Path, other: Path) -> None:
    found, expected = Run(run), Run(other)
    for name, column in expected.iterations.items():
        assert_array_equal(found.iterations[name], column, err_msg=name)
    for name in set(expected.evaluations) - {"seconds"}:
        assert_array_equal(found.evaluations[name], expected.evaluations[name], err_msg=name)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a model of one's own."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "own_model.py").write_text(OWN, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def first(here: Path) -> subprocess.CompletedProcess[str]:
    """A quick start of six iterations, in the default directory runs/quickstart."""
    return flexfl(
        "run", "quickstart", *SMALL, *iterations(6), "--set", "record.clients=true", "--json", cwd=here
    )


@pytest.fixture(scope="module")
def uninterrupted(here: Path, first: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Sixteen iterations with the own model; the default directory's next number."""
    assert first.returncode == 0, first.stderr
    return flexfl("run", "quickstart", *OWN_RUN, *iterations(16), cwd=here)


# Light -------------------------------------------------------------------------------------


def modules_after(code: str, cwd: Path) -> set[str]:
    probe = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], cwd=cwd, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()}


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    call = """
import contextlib, io, sys
sys.argv = ["flexfl", *{arguments!r}]
from flexfl.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main()
assert "Usage" in out.getvalue()
"""
    heavy = {"torch", "numba", "numpy", "matplotlib", "plotly", "pyarrow"}
    loaded = modules_after(call.format(arguments=["--help"]), tmp_path)
    assert "typer" in loaded
    assert not loaded & {*heavy, "pydantic"}
    # For the options of one command typer itself brings pydantic.
    assert not modules_after(call.format(arguments=["run", "--help"]), tmp_path) & heavy
    done = flexfl("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("run", "report", "export"))
    assert flexfl("--version", cwd=tmp_path).stdout.startswith("flexfl ")


def test_the_rooms_of_the_paper_load_no_torch(tmp_path: Path) -> None:
    rooms = "import flexfl, flexfl.control, flexfl.costs, flexfl.algorithm, flexfl.compress, flexfl.wire"
    loaded = modules_after(rooms, tmp_path)
    assert "numpy" in loaded
    assert not loaded & {"torch", "numba"}
    assert "torch" not in modules_after("import flexfl.results, flexfl.spec", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "quickstrat"], ["SPEC", "did you mean quickstart?"]),
        (["run", "bad.toml"], ["bad.toml", "must be TOML"]),
        (
            [
                "run",
                "quickstart",
                "--set",
                "budget.uplink=0",
                "--set",
                "trian.seed=1",
                "--set",
                "control.policy=online",
                "--set",
                "control.tradeoff=-1",
            ],
            [
                "3 faults in the spec quickstart",
                "budget.uplink must be > 0, got 0; leave it out for no limit",
                "did you mean train?",
                "control.tradeoff must be > 0, got -1",
            ],
        ),
        (["run", "quickstart", "--set", "train"], ["--set must read section.key=value, got 'train'"]),
        (["export", "absent"], ["absent holds no run"]),
        (["report", "absent"], ["absent"]),
    ],
)
def test_bad_input_is_told_without_traceback(
    tmp_path: Path, arguments: list[str], expected: list[str]
) -> None:
    (tmp_path / "bad.toml").write_text("[train", encoding="utf-8")
    message = refused(flexfl(*arguments, cwd=tmp_path))
    assert all(words in message for words in expected), message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "quickstart", "--st", "a"], ["export", ".", "--format", "xml"]]
)
def test_bad_usage(tmp_path: Path, arguments: list[str]) -> None:
    done = flexfl(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Usage" in done.stderr
    assert "Traceback" not in done.stderr


# Runs --------------------------------------------------------------------------------------


def test_json_is_one_object_and_nothing_else(here: Path, first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("\n") == 1
    summary = json.loads(first.stdout)
    run = Run(here / "runs" / "quickstart")
    assert summary == run.summary
    assert (summary["iterations"], summary["clients"], summary["seed"]) == (6, 20, 1)
    assert 0 <= summary["test_accuracy"] <= 1
    for knob in ("compute", "uplink", "downlink"):
        assert summary["average_cost"][knob]["spent"] == pytest.approx(run.average_cost(knob)[-1])
        assert summary["average_cost"][knob]["budget"] == run.budget(knob)
    assert "iteration 6/6" in first.stderr
    assert_array_equal(run.evaluations["iteration"], [0, 5, 6])
    assert run.clients["uplink_cost"].shape == (6, 20)


def test_the_next_default_directory_and_the_closing_table(
    here: Path, uninterrupted: subprocess.CompletedProcess[str]
) -> None:
    """Also: a model "module:function" in the working folder is found."""
    assert uninterrupted.returncode == 0, uninterrupted.stderr
    assert (here / "runs" / "quickstart-2" / "summary.json").is_file()
    assert Run(here / "runs" / "quickstart-2").spec["model"]["name"] == "own_model:net"
    for words in ("test accuracy", "spent / budget", "runs/quickstart-2", "flexfl report"):
        assert words in uninterrupted.stdout
    dim = 784 * 5 + 5 + 5 * 10 + 10
    assert last_checkpoint(here / "runs" / "quickstart-2")["params"].shape == (dim,)


def test_export(here: Path, first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0
    run = Run(here / "runs" / "quickstart")
    done = flexfl("export", "runs/quickstart", "--out", "tables", cwd=here)
    assert done.returncode == 0, done.stderr
    names = ["evaluations", "iterations", "clients"]
    assert done.stdout.splitlines() == [f"tables/{name}.csv" for name in names]
    done = flexfl("export", "runs/quickstart", "--format", "parquet", "--out", "tables", cwd=here)
    assert done.stdout.splitlines() == [f"tables/{name}.parquet" for name in names]

    tables = here / "tables"
    with (tables / "iterations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    parquet = pyarrow.parquet.read_table(tables / "iterations.parquet").to_pydict()
    for name, column in run.iterations.items():
        assert_array_equal([float(row[name] or "nan") for row in rows], column)  # without a clock, no time
        assert_array_equal(np.array(parquet[name], dtype=float), column)
    clients = pyarrow.parquet.read_table(tables / "clients.parquet").to_pydict()
    assert clients["client"] == list(range(20)) * 6
    assert_array_equal(np.array(clients["uplink_cost"]).reshape(6, 20), run.clients["uplink_cost"])


def test_a_file_in_the_place_of_the_tables(here: Path, first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0
    assert "own_model.py" in refused(flexfl("export", "runs/quickstart", "--out", "own_model.py", cwd=here))


def test_resume(here: Path, uninterrupted: subprocess.CompletedProcess[str]) -> None:
    """An existing run is left alone unless asked; asked, it is extended, and only as the same run."""
    assert uninterrupted.returncode == 0
    run = here / "runs" / "extended"
    shutil.copytree(here / "runs" / "quickstart-2", run)
    before = contents(run)
    again = ["run", "quickstart", *OWN_RUN, "--out", "runs/extended"]

    assert "add --resume" in refused(flexfl(*again, *iterations(16), cwd=here))
    message = refused(flexfl(*again, *iterations(20), "--resume", "--set", "train.seed=2", cwd=here))
    assert "train.seed is 1 there, got 2" in message
    assert contents(run) == before

    done = flexfl(*again, *iterations(20), "--resume", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iterations"] == 20
    assert_array_equal(Run(run).iterations["iteration"], range(20))
    assert_array_equal(Run(run).evaluations["iteration"], [0, 5, 10, 15, 20])


def test_fewer_iterations_than_done_are_refused_and_change_nothing(
    here: Path, first: subprocess.CompletedProcess[str]
) -> None:
    assert first.returncode == 0
    run = here / "runs" / "shorter"
    shutil.copytree(here / "runs" / "quickstart", run)
    before = contents(run)
    arguments = ["run", "quickstart", *SMALL, *iterations(3), "--set", "record.clients=true"]
    message = refused(flexfl(*arguments, "--quiet", "--out", "runs/shorter", "--resume", cwd=here))
    assert "train.iterations must be at least the 6 that runs/shorter has done, got 3" in message
    assert contents(run) == before


def test_interrupt_and_resume(here: Path, uninterrupted: subprocess.CompletedProcess[str]) -> None:
    """Ctrl-C, a refused resume from a corrupt copy, and the rest of the run: as if nothing had been."""
    assert uninterrupted.returncode == 0
    command = ["run", "quickstart", *OWN_RUN, *iterations(16), "--out", "runs/stopped"]
    slow = {**os.environ, "SLOW": "0.2"}
    with subprocess.Popen(
        [FLEXFL, *command], cwd=here, env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("iteration 3/16"):
                process.send_signal(signal.SIGINT)
                break
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    stopped = re.search(r"stopped after iteration (\d+) of 16", errors)
    assert stopped is not None
    done = int(stopped[1])
    assert 3 <= done < 16
    assert "--out runs/stopped --resume" in errors
    run = here / "runs" / "stopped"
    assert last_checkpoint(run)["iteration"].tolist() == [done]
    assert_array_equal(Run(run).iterations["iteration"], range(done))
    assert Run(run).summary is None

    corrupt = here / "runs" / "corrupt"
    shutil.copytree(run, corrupt)
    (checkpoint,) = corrupt.glob("checkpoint-*")
    data = bytearray(checkpoint.read_bytes())
    data[-1] ^= 1
    checkpoint.write_bytes(data)
    before = contents(corrupt)
    message = refused(flexfl(*command[:-1], "runs/corrupt", "--resume", "--quiet", cwd=here))
    assert "corrupt" in message
    assert contents(corrupt) == before

    # The command that the message names, as it stands.
    hint = re.search(r"resume with: flexfl (.*)", errors)
    assert hint is not None
    resumed = flexfl(*hint[1].split(), cwd=here)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_state(run, here / "runs" / "quickstart-2")
    assert_same_metrics(run, here / "runs" / "quickstart-2")


def test_a_model_that_does_not_fit_the_labels_is_refused(tmp_path: Path) -> None:
    few = ["--set", "model.options.classes=7", "--quiet"]
    message = refused(flexfl("run", "quickstart", *SMALL, *few, cwd=tmp_path))
    assert "must return one output for each of the 10 classes, got (7,)" in message
    assert not (tmp_path / "runs").exists()


def test_training_that_diverges(tmp_path: Path) -> None:
    """It stops with a word on who and when, and the last good checkpoint stays."""
    steep = ["--set", "train.learning_rate=1e15", "--set", "engine.checkpoint_every=1", "--out", "run"]
    done = flexfl("run", "quickstart", *SMALL, *iterations(50), *steep, "--quiet", cwd=tmp_path)
    message = refused(done)
    found = re.search(r"of client (\d+) became NaN or infinite in iteration (\d+); lower", message)
    assert found is not None, message
    client, iteration = int(found[1]), int(found[2])
    assert 0 <= client < 20
    assert 0 < iteration < 50

    store = MetricStore(tmp_path / "run" / "metrics.sqlite")
    found = store.checkpoint()
    assert_array_equal(store.iterations()["iteration"], range(iteration))
    store.close()
    assert found is not None
    assert found[0] == iteration
    state: dict[str, Any] = read_checkpoint(tmp_path / "run" / found[1], found[2])
    assert int(state["iteration"][0]) == iteration
    for name in ("params", "server_residual", "client_residual"):
        assert np.isfinite(state[name]).all()
    assert not (tmp_path / "run" / "summary.json").exists()
