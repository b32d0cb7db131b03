"""Run directories: whole rows, whole checkpoints, one writer, and tables for other tools."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from flexfl.errors import FlexFLError, RunDirectoryError
from flexfl.parameters import KNOBS
from flexfl.results import Run
from flexfl.results.checkpoint import read_checkpoint, write_checkpoint
from flexfl.results.columns import (
    CLIENT_COLUMNS,
    EVALUATION_COLUMNS,
    ITERATION_COLUMNS,
    PER_CLIENT,
    PER_ITERATION,
)
from flexfl.results.directory import RunDirectory
from flexfl.results.export import export_run
from flexfl.results.partition import Partition
from flexfl.results.run import mean_budget
from flexfl.results.store import MetricStore
from flexfl.spec import load_spec, to_toml

CLIENTS = 5
IDENTITY = {"data": "d1", "model": "m1"}


def record(iteration: int) -> dict[str, Any]:
    """What the engine tells of one iteration, with numbers of no meaning."""
    rng = np.random.default_rng(iteration)
    numbers = {name: float(rng.normal()) for name in PER_ITERATION}
    arrays = {name: rng.normal(size=CLIENTS) for name in PER_CLIENT}
    return {"iteration": iteration, **numbers, **arrays, "computed": rng.random(CLIENTS) < 0.5}


def evaluation(iteration: int) -> dict[str, float]:
    return {name: float(value) for value, name in enumerate(EVALUATION_COLUMNS, start=iteration)}


def spec_toml(*overrides: str) -> str:
    return to_toml(load_spec("quickstart", [f"data.clients={CLIENTS}", *overrides]))


def open_run(path: Path, *overrides: str, resume: bool = False, **identity: str) -> RunDirectory:
    return RunDirectory(path, spec_toml(*overrides), {**IDENTITY, **identity}, resume=resume)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricStore]:
    opened = MetricStore(tmp_path / "metrics.sqlite", create=True)
    yield opened
    opened.close()


# Metrics -----------------------------------------------------------------------------------


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(-1e6, 1e6))
)
def test_mean_and_quantiles_over_clients(values: np.ndarray) -> None:
    """(T, N), against NumPy row by row."""
    opened = MetricStore(Path(":memory:"), create=True)
    for iteration, row in enumerate(values):
        columns = {name: row * (1 + index) for index, name in enumerate(PER_CLIENT)}
        opened.add_iteration(
            {**dict.fromkeys(PER_ITERATION, 0.5), **columns, "computed": row > 0, "iteration": iteration}
        )
    opened.commit()
    found = opened.iterations()
    opened.close()
    assert set(found) == {"iteration", *ITERATION_COLUMNS}
    assert_array_equal(found["computed"], (values > 0).sum(axis=1))
    for index, name in enumerate(PER_CLIENT):
        scaled = values * (1 + index)
        assert_allclose(found[f"{name}_mean"], [np.mean(row) for row in scaled], rtol=1e-12, atol=1e-9)
        for label, share in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9)):
            expected = [np.quantile(row, share) for row in scaled]
            assert_allclose(found[f"{name}_{label}"], expected, rtol=1e-12, atol=1e-9)


def test_numbers_come_back_as_they_were(store: MetricStore) -> None:
    for iteration in range(3):
        store.add_iteration(record(iteration))
    store.add_evaluation(0, evaluation(0))
    store.add_evaluation(3, {"train_loss": 0.1, "test_loss": None, "train_accuracy": math.nan})
    store.commit()
    found = store.iterations()
    assert_array_equal(found["iteration"], [0, 1, 2])
    for name in set(PER_ITERATION) - {"computed"}:
        assert_array_equal(found[name], [record(iteration)[name] for iteration in range(3)])
    evaluations = store.evaluations()
    assert_array_equal(evaluations["iteration"], [0, 3])
    assert_array_equal(evaluations["train_loss"], [0.0, 0.1])
    for name in ("train_accuracy", "test_loss", "test_accuracy", "seconds"):
        assert_array_equal(evaluations[name], [evaluation(0)[name], np.nan])


def test_a_run_of_an_earlier_version_is_read_and_not_resumed(store: MetricStore) -> None:
    store.add_iteration(record(0))
    store.add_evaluation(0, evaluation(0))
    store.commit()
    store._db.execute("ALTER TABLE iterations DROP COLUMN learning_rate")
    store._db.execute("ALTER TABLE evaluations DROP COLUMN average_test_loss")
    assert np.isnan(store.iterations()["learning_rate"]).all()
    assert_array_equal(store.iterations()["senders"], [record(0)["senders"]])
    assert_array_equal(store.evaluations()["seconds"], [evaluation(0)["seconds"]])
    with pytest.raises(RunDirectoryError, match="without average_test_loss, learning_rate; it can be read"):
        store.check()


def test_nan_is_kept_as_nothing_to_tell(store: MetricStore) -> None:
    """A knob without a queue has no queue length."""
    store.add_iteration({**record(0), "compute_queue": np.full(CLIENTS, np.nan), "batch_loss": math.nan})
    store.commit(by_client=True)
    found = store.iterations()
    assert np.isnan([found["compute_queue_mean"], found["compute_queue_p50"], found["batch_loss"]]).all()
    assert np.isnan(store.clients()["compute_queue"]).all()


def test_rows_appear_on_commit_only(store: MetricStore) -> None:
    reader = MetricStore(store.path)
    store.add_iteration(record(0))
    store.add_evaluation(0, evaluation(0))
    for opened in (store, reader):
        assert len(opened.iterations()["iteration"]) == len(opened.evaluations()["iteration"]) == 0
    store.commit(checkpoint=(1, "file", "digest"))
    assert_array_equal(reader.iterations()["iteration"], [0])
    assert_array_equal(reader.evaluations()["iteration"], [0])
    assert reader.checkpoint() == (1, "file", "digest")
    store.commit()  # nothing is written twice
    assert_array_equal(reader.iterations()["iteration"], [0])
    reader.close()


def test_an_empty_store(store: MetricStore) -> None:
    store.commit()
    assert store.checkpoint() is None
    assert all(len(column) == 0 for column in store.iterations().values())
    assert all(len(column) == 0 for column in store.clients().values())


def test_by_client(store: MetricStore) -> None:
    store.add_iteration(record(0))
    store.commit(by_client=False)
    assert len(store.clients()["iteration"]) == 0
    for iteration in (1, 2):
        store.add_iteration(record(iteration))
    store.commit(by_client=True)
    found = store.clients()
    assert set(found) == {"iteration", *CLIENT_COLUMNS}
    assert_array_equal(found["iteration"], [1, 2])
    for name in CLIENT_COLUMNS:
        assert_array_equal(
            found[name], np.array([record(1)[name], record(2)[name]], dtype=float), strict=True
        )


def test_rewind(store: MetricStore) -> None:
    for iteration in range(6):
        store.add_iteration(record(iteration))
        store.add_evaluation(iteration, evaluation(iteration))
    store.commit(by_client=True)
    store.rewind(4)
    for table in (store.iterations(), store.evaluations(), store.clients()):
        assert_array_equal(table["iteration"], [0, 1, 2, 3])
    for iteration in (4, 5):
        store.add_iteration(record(iteration))
    store.commit()
    assert_array_equal(store.iterations()["iteration"], range(6))


def test_a_newer_checkpoint_takes_the_place_of_the_older(store: MetricStore) -> None:
    store.commit(checkpoint=(5, "five", "a"))
    store.commit(checkpoint=(10, "ten", "b"))
    assert store.checkpoint() == (10, "ten", "b")
    store.commit()
    assert store.checkpoint() == (10, "ten", "b")
    store.commit(checkpoint=(10, "ten", "c"))  # as when a finished run is resumed
    assert store.checkpoint() == (10, "ten", "c")
    store.commit(checkpoint=(5, "five", "d"))
    assert store.checkpoint() == (5, "five", "d")


@pytest.mark.parametrize("broken", ["iteration twice", "evaluation twice", "client's column"])
def test_a_failing_commit_leaves_nothing_half_written(store: MetricStore, broken: str) -> None:
    store.add_iteration(record(0))
    store.add_evaluation(0, evaluation(0))
    store.commit(checkpoint=(1, "one", "a"), by_client=True)
    store.add_iteration(record(1))
    store.add_evaluation(1, evaluation(1))
    if broken == "iteration twice":
        store.add_iteration(record(0))
    elif broken == "evaluation twice":
        store.add_evaluation(0, evaluation(0))
    else:
        store.add_iteration({**record(2), "computed": ["many"] * CLIENTS})
    with pytest.raises((sqlite3.IntegrityError, ValueError, TypeError)):
        store.commit(checkpoint=(2, "two", "b"), by_client=True)
    reader = MetricStore(store.path)
    for table in (reader.iterations(), reader.evaluations(), reader.clients()):
        assert_array_equal(table["iteration"], [0])
    assert reader.checkpoint() == (1, "one", "a")
    reader.close()


def test_a_writer_that_dies_leaves_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sqlite"
    store = MetricStore(path, create=True)
    store.add_iteration(record(0))
    store.commit()
    store.add_iteration(record(1))
    # The process is gone: its files are as they are, log included, and nobody closed them.
    other = tmp_path / "after"
    other.mkdir()
    for file in tmp_path.glob("metrics.sqlite*"):
        (other / file.name).write_bytes(file.read_bytes())
    store.close()
    survivor = MetricStore(other / "metrics.sqlite")
    assert_array_equal(survivor.iterations()["iteration"], [0])
    survivor.close()


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, b"SQLite format 3\0" + bytes(2000)])
def test_a_foreign_metrics_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.sqlite"
    path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match="is not a run's metrics"):
        MetricStore(path)


def test_metrics_of_another_format_or_absent_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sqlite"
    with pytest.raises(RunDirectoryError, match="missing"):
        MetricStore(path)
    assert not path.exists()
    store = MetricStore(path, create=True)
    store.set_meta("format", "99")
    store.close()
    with pytest.raises(RunDirectoryError, match="has format 99"):
        MetricStore(path)


# Checkpoints -------------------------------------------------------------------------------

ARRAYS = {
    "params": np.linspace(-1, 1, 7, dtype=np.float32),
    "client_residual": np.arange(6.0).reshape(2, 3),
    "batches_used": np.array([3, 0, 2**40]),
    "iteration": np.array([12]),
}


@given(
    st.dictionaries(
        st.text("abc._", min_size=1, max_size=5),
        st.one_of(
            hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=5)),
            hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=5)),
            hnp.arrays(np.int64, hnp.array_shapes(max_dims=1, max_side=5)),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_checkpoint_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    digest = write_checkpoint(path, arrays)
    found = read_checkpoint(path, digest)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    assert not path.with_name("any.safetensors.partial").exists()


def test_views_are_written_as_they_look(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    array = np.arange(12.0).reshape(3, 4)
    digest = write_checkpoint(path, {"turned": array.T, "every other": array[:, ::2]})
    found = read_checkpoint(path, digest)
    assert_array_equal(found["turned"], array.T)
    assert_array_equal(found["every other"], array[:, ::2])


def test_every_flipped_byte_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    digest = write_checkpoint(path, ARRAYS)
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x01]) + good[place + 1 :])
        with pytest.raises(RunDirectoryError, match="corrupt or from another run"):
            read_checkpoint(path, digest)


def test_a_truncated_foreign_or_absent_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    digest = write_checkpoint(path, ARRAYS)
    good = path.read_bytes()
    foreign = write_checkpoint(path, {"params": np.zeros(3)})
    with pytest.raises(RunDirectoryError, match="corrupt or from another run"):
        read_checkpoint(path, digest)
    for bad in (good[:-1], good[:20], b"", good + b"\0"):
        path.write_bytes(bad)
        with pytest.raises(RunDirectoryError, match="corrupt or from another run"):
            read_checkpoint(path, digest)
    path.unlink()
    with pytest.raises(RunDirectoryError, match=r"cannot be read.*another out=…"):
        read_checkpoint(path, foreign)


def test_a_file_that_is_no_checkpoint_is_refused_even_with_its_own_digest(tmp_path: Path) -> None:
    """Nothing but safetensors is read, whatever the metrics say."""
    path = tmp_path / "c.safetensors"
    for content in (b"\x80\x04N.", b"", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(RunDirectoryError, match="cannot be read"):
            read_checkpoint(path, hashlib.blake2b(content).hexdigest())


# Run directories ---------------------------------------------------------------------------


def write_run(path: Path, iterations: int = 4, *overrides: str, by_client: bool = False) -> Run:
    with open_run(path, *overrides) as directory:
        for iteration in range(iterations):
            directory.store.add_iteration(record(iteration))
        directory.store.add_evaluation(0, evaluation(0))
        directory.checkpoint(iterations, ARRAYS, by_client=by_client)
        directory.store.add_evaluation(iterations, evaluation(7))
        directory.store.commit()
        directory.write_summary(directory.summarise(1.25))
    return Run(path)


def test_a_run_from_start_to_finish(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    run = write_run(path)
    assert set(contents(path)) == {
        ".lock",
        "checkpoint-00000004.safetensors",
        "metrics.sqlite",
        "spec.toml",
        "summary.json",
    }
    assert (path / "spec.toml").read_text(encoding="utf-8") == spec_toml()
    assert run.seed == 1
    assert_array_equal(run.iterations["iteration"], range(4))
    assert run.summary == json.loads((path / "summary.json").read_text(encoding="utf-8"))
    with open_run(path, resume=True) as again:
        state = again.last_state()
    assert state is not None
    for name, array in ARRAYS.items():
        assert_array_equal(state[name], array, strict=True)


def test_the_summary(tmp_path: Path) -> None:
    summary = write_run(tmp_path / "run").summary
    assert summary is not None
    records = [record(iteration) for iteration in range(4)]
    assert (summary["iterations"], summary["seed"], summary["clients"]) == (4, 1, CLIENTS)
    assert (summary["train_loss"], summary["test_accuracy"]) == (7.0, 11.0)
    cost = summary["average_cost"]
    assert cost["compute"]["spent"] == pytest.approx(np.mean([r["compute_spent"] for r in records]))
    assert cost["compute"]["charged"] == pytest.approx(np.mean([r["compute_cost"] for r in records]))
    assert cost["uplink"]["spent"] == pytest.approx(np.mean([r["uplink_cost"] for r in records]))
    assert cost["downlink"]["spent"] == pytest.approx(np.mean([r["downlink_cost"] for r in records]))
    assert [cost[knob]["budget"] for knob in KNOBS] == [0.25, 0.01, 0.01]
    assert summary["computed_per_iteration"] == pytest.approx(np.mean([r["computed"].sum() for r in records]))
    assert summary["uplink_bytes"] == round(sum(r["uplink_bytes"].sum() for r in records))
    assert summary["seconds"] == 1.25


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_the_summary_is_json_whatever_was_measured(tmp_path: Path, loss: float) -> None:
    """JSON has no word for infinity."""
    with open_run(tmp_path / "run") as directory:
        directory.store.add_iteration({**record(0), "batch_loss": loss})
        directory.store.add_evaluation(1, {"train_loss": loss})
        directory.store.commit()
        directory.write_summary(directory.summarise(1.0))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    text = (tmp_path / "run" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=refuse)["train_loss"] is None


def test_a_run_without_summary_is_unfinished(tmp_path: Path) -> None:
    with open_run(tmp_path) as directory:
        assert directory.last_state() is None
        assert Run(tmp_path).summary is None


def test_a_folder_without_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="holds no run"):
        Run(tmp_path)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        Run(tmp_path / "absent")


def test_an_existing_run_needs_resume(tmp_path: Path) -> None:
    write_run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"already holds a run; add resume=True"):
        open_run(tmp_path)
    assert contents(tmp_path) == before


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path) as first:
        first.checkpoint(0, ARRAYS, by_client=False)
        before = contents(tmp_path)
        for _ in range(2):
            with pytest.raises(RunDirectoryError, match="in use by another process"):
                open_run(tmp_path, "train.iterations=7", resume=True)
        assert contents(tmp_path) == before
        first.store.add_iteration(record(0))
        first.store.commit()  # and the first is not disturbed
    with open_run(tmp_path, resume=True) as later:
        assert later.last_state() is not None


def test_another_spec_is_refused_with_its_differences(tmp_path: Path) -> None:
    write_run(tmp_path)
    before = contents(tmp_path)
    other = ("train.seed=2", "budget.uplink=0.5", "engine.residuals=file", "costs.uplink.factor=2")
    with pytest.raises(RunDirectoryError) as caught:
        open_run(tmp_path, *other, resume=True)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{tmp_path} belongs to another run:"
    assert lines[1:-1] == [
        "  budget.uplink is 0.01 there, got 0.5",
        "  costs.uplink.factor is 1.0 there, got 2.0",
        "  engine.residuals is 'memory' there, got 'file'",
        "  train.seed is 1 there, got 2",
    ]
    assert contents(tmp_path) == before
    open_run(tmp_path, resume=True).__exit__(None, None, None)  # the lock was given back


def test_settings_that_do_not_change_an_iteration_may_change(tmp_path: Path) -> None:
    write_run(tmp_path)
    with open_run(tmp_path, "train.iterations=77", "engine.checkpoint_every=3", resume=True) as directory:
        assert directory.last_state() is not None
    assert Run(tmp_path).spec["train"]["iterations"] == 77


@pytest.mark.parametrize("key", ["data", "model"])
def test_other_data_or_another_model_is_refused(tmp_path: Path, key: str) -> None:
    write_run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RunDirectoryError, match=rf"its {key} is {IDENTITY[key]}, got other"):
        open_run(tmp_path, resume=True, **{key: "other"})
    assert contents(tmp_path) == before
    open_run(tmp_path, resume=True).__exit__(None, None, None)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    (tmp_path / "metrics.sqlite").write_bytes(b"")
    before = contents(tmp_path)
    with pytest.raises(RunDirectoryError, match="not empty and holds no run"):
        open_run(tmp_path, resume=resume)
    assert contents(tmp_path) == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("x", encoding="utf-8")
    with pytest.raises(RunDirectoryError, match="must be a folder"):
        open_run(path)
    with pytest.raises(RunDirectoryError, match="cannot be created"):
        open_run(path / "below")
    assert path.read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize("resume", [False, True])
def test_leftovers_of_a_start_cut_short_are_cleared(tmp_path: Path, resume: bool) -> None:
    """The spec is written last; whatever a start left before it, is of no run."""
    store = MetricStore(tmp_path / "metrics.sqlite", create=True)
    store.add_iteration(record(0))
    store.set_meta("data", "of another run")
    store.commit(checkpoint=(1, "gone", "gone"))
    store.close()
    for name in (".lock", "metrics.sqlite-wal", "metrics.sqlite-shm", "spec.toml.partial"):
        (tmp_path / name).write_bytes(b"")
    for name in ("partition.json", "partition.json.partial"):
        (tmp_path / name).write_text("of another run", encoding="utf-8")
    with open_run(tmp_path, resume=resume) as directory:
        assert directory.last_state() is None
        assert directory.store.meta("data") == "d1"
        assert len(directory.store.iterations()["iteration"]) == 0
    assert set(contents(tmp_path)) == {".lock", "metrics.sqlite", "spec.toml"}


@pytest.mark.parametrize("name", ["partition.json", "metrics.sqlite"])
def test_a_file_that_no_start_of_ours_left_is_kept(tmp_path: Path, name: str) -> None:
    """A start makes its lock first: without one, a file of that name is somebody's own."""
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(RunDirectoryError, match="not empty and holds no run"):
        open_run(tmp_path)
    assert contents(tmp_path) == {name: b"mine"}


def test_metrics_are_rewound_to_the_checkpoint(tmp_path: Path) -> None:
    with open_run(tmp_path) as directory:
        for iteration in range(6):
            directory.store.add_iteration(record(iteration))
            if iteration == 3:
                directory.checkpoint(4, ARRAYS, by_client=True)
        directory.store.commit(by_client=True)  # as every few seconds, between checkpoints
    assert len(Run(tmp_path).iterations["iteration"]) == 6
    with open_run(tmp_path, resume=True) as directory:
        assert directory.last_state() is not None
        assert_array_equal(directory.store.iterations()["iteration"], range(4))
        for iteration in (4, 5):
            directory.store.add_iteration(record(iteration))
        directory.checkpoint(6, ARRAYS, by_client=True)
    run = Run(tmp_path)
    assert_array_equal(run.iterations["iteration"], range(6))
    assert_array_equal(run.clients["iteration"], range(6))


def test_without_checkpoint_a_run_starts_from_the_beginning(tmp_path: Path) -> None:
    with open_run(tmp_path) as directory:
        directory.store.add_iteration(record(0))
        directory.store.commit()
    with open_run(tmp_path, resume=True) as directory:
        assert directory.last_state() is None
        assert len(directory.store.iterations()["iteration"]) == 0


def test_one_checkpoint_is_kept(tmp_path: Path) -> None:
    with open_run(tmp_path) as directory:
        for iteration in (5, 10, 15):
            directory.checkpoint(iteration, ARRAYS, by_client=False)
    assert [p.name for p in tmp_path.glob("checkpoint*")] == ["checkpoint-00000015.safetensors"]


def test_a_crash_between_file_and_commit_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    with open_run(tmp_path) as directory:
        directory.checkpoint(5, ARRAYS, by_client=False)
        # Cut off after the new file was written, before the metrics name it.
        write_checkpoint(tmp_path / "checkpoint-00000010.safetensors", {"params": np.zeros(1)})
        (tmp_path / "checkpoint-00000015.safetensors.partial").write_bytes(b"half")
    with open_run(tmp_path, resume=True) as directory:
        state = directory.last_state()
        assert state is not None
        assert_array_equal(state["params"], ARRAYS["params"])
        directory.checkpoint(10, ARRAYS, by_client=False)
    assert [p.name for p in tmp_path.glob("checkpoint*")] == ["checkpoint-00000010.safetensors"]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "foreign", "absent"])
def test_a_damaged_checkpoint_is_refused_and_nothing_is_rewound(tmp_path: Path, damage: str) -> None:
    write_run(tmp_path)
    path = tmp_path / "checkpoint-00000004.safetensors"
    good = path.read_bytes()
    if damage == "absent":
        path.unlink()
    elif damage == "foreign":
        write_checkpoint(path, {"params": np.zeros(3)})
    else:
        path.write_bytes(good[:-1] + (bytes([good[-1] ^ 1]) if damage == "flipped" else b""))
    before = {name: (tmp_path / name).read_bytes() for name in ("spec.toml", "summary.json")}
    with pytest.raises(RunDirectoryError, match="checkpoint-00000004"):
        open_run(tmp_path, resume=True)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    run = Run(tmp_path)
    assert_array_equal(run.iterations["iteration"], range(4))
    assert_array_equal(run.evaluations["iteration"], [0, 4])


@pytest.mark.parametrize("damage", ["metrics absent", "metrics foreign", "spec broken", "spec not text"])
def test_a_damaged_run_directory_is_refused(tmp_path: Path, damage: str) -> None:
    write_run(tmp_path)
    if damage == "metrics absent":
        (tmp_path / "metrics.sqlite").unlink()
    elif damage == "metrics foreign":
        (tmp_path / "metrics.sqlite").write_bytes(b"something else" * 50)
    else:
        (tmp_path / "spec.toml").write_bytes(b"[train" if damage == "spec broken" else b"\xff\xfe")
    before = contents(tmp_path)
    for _ in range(2):  # twice: a refusal gives the lock back
        with pytest.raises(RunDirectoryError):
            open_run(tmp_path, resume=True)
    assert contents(tmp_path) == before


# Partitions --------------------------------------------------------------------------------

PARTITION = Partition.of(
    [np.array([0, 3]), np.array([1]), np.array([2, 4, 5])], np.array([1, 0, 2, 1, 2, 0]), classes=4
)


def assert_equal_partitions(found: Partition | None, expected: Partition) -> None:
    assert found is not None
    assert found.classes == expected.classes
    assert_array_equal(found.sizes, expected.sizes)
    assert_array_equal(found.held, expected.held)


def with_partition(path: Path, partition: Partition | None, *, resume: bool = False) -> RunDirectory:
    return RunDirectory(path, spec_toml(), IDENTITY, resume=resume, partition=partition)


def test_a_partition_by_hand() -> None:
    assert_array_equal(PARTITION.sizes, [2, 1, 3])
    assert PARTITION.classes == 4
    assert PARTITION.held.tolist() == [[0, 1, 2], [1, 0, 1], [2, 0, 1], [2, 2, 2]]
    assert json.loads(PARTITION.to_json()) == {
        "classes": 4,
        "clients": [{"1": 2}, {"0": 1}, {"0": 1, "2": 2}],
    }


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=8), min_size=1, max_size=9), st.booleans())
def test_a_partition_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, held: list[list[int]], classes: bool
) -> None:
    labels = np.concatenate(held)
    parts = np.split(np.arange(len(labels)), np.cumsum([len(of_client) for of_client in held])[:-1])
    partition = Partition.of(parts, labels if classes else labels / 2, 7 if classes else None)
    path = tmp_path_factory.getbasetemp() / "partition.json"
    path.write_text(partition.to_json(), encoding="utf-8")
    assert_equal_partitions(Partition.read(path), partition)
    assert_array_equal(partition.sizes, [len(of_client) for of_client in held])
    counts = np.zeros((len(held), 7), dtype=int)
    counts[partition.held[:, 0], partition.held[:, 1]] = partition.held[:, 2]
    if classes:
        assert_array_equal(counts, [np.bincount(of_client, minlength=7) for of_client in held])


def test_a_partition_of_many_clients_and_classes_stays_small() -> None:
    """Ten thousand clients; classes as many as a language has words."""
    labels = np.random.default_rng(0).integers(0, 50_000, 60_000)
    partition = Partition.of(np.array_split(np.arange(60_000), 10_000), labels, 50_000)
    assert len(partition.to_json()) < 1_000_000


def test_a_run_keeps_its_partition(tmp_path: Path) -> None:
    with with_partition(tmp_path, PARTITION):
        assert_equal_partitions(Run(tmp_path).partition, PARTITION)  # from the start on
    before = contents(tmp_path)["partition.json"]
    with with_partition(tmp_path, PARTITION, resume=True):
        pass
    assert contents(tmp_path)["partition.json"] == before
    assert not (tmp_path / "partition.json.partial").exists()


def test_a_run_of_an_earlier_version_gets_its_partition_when_it_goes_on(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert Run(tmp_path).partition is None
    with pytest.raises(RunDirectoryError, match="its data is"):
        RunDirectory(tmp_path, spec_toml(), {"data": "other"}, resume=True, partition=PARTITION)
    assert not (tmp_path / "partition.json").exists()
    with with_partition(tmp_path, PARTITION, resume=True):
        pass
    assert_equal_partitions(Run(tmp_path).partition, PARTITION)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"classes":2,"clients":[5]}', "\xff"])
def test_a_damaged_partition_is_told(tmp_path: Path, content: str) -> None:
    run = write_run(tmp_path)
    (tmp_path / "partition.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RunDirectoryError, match=r"partition\.json cannot be read .*delete it"):
        _ = run.partition


# What a run tells --------------------------------------------------------------------------


def test_average_cost(tmp_path: Path) -> None:
    run = write_run(tmp_path, 6)
    names = {"compute": "compute_spent", "uplink": "uplink_cost", "downlink": "downlink_cost"}
    for knob, name in names.items():
        spent = [np.mean(record(iteration)[name]) for iteration in range(6)]
        assert_allclose(run.average_cost(knob), [np.mean(spent[: t + 1]) for t in range(6)])


BUDGETS: list[tuple[Any, float | None]] = [
    (None, None),
    (0.25, 0.25),
    (math.inf, None),
    ([0.1, 0.2, 0.3, 0.4, 0.5], 0.3),
    ([0.1, 0.2, 0.3, 0.4, math.inf], None),
    ({"shared": [{"clients": [0, 1], "limit": 1.0}, {"clients": [2, 3, 4], "limit": 0.5}]}, 0.3),
    ({"shared": [{"clients": [0, 1], "limit": 1.0}], "others": 0.5}, 0.5),
    ({"shared": [{"clients": [0, 1], "limit": 1.0}]}, None),
    ({"shared": [{"clients": [0, 1], "limit": math.inf}], "others": 0.5}, None),
]


@pytest.mark.parametrize(("given_budget", "expected"), BUDGETS)
def test_the_budget_averaged_over_clients(given_budget: Any, expected: float | None) -> None:
    found = mean_budget(given_budget, clients=CLIENTS)
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_budget_of_a_run(tmp_path: Path) -> None:
    overrides = [
        "budget.compute=[0.1, 0.2, 0.3, 0.4, 0.5]",
        "budget.uplink.shared=[{clients = '0-3', limit = 0.8}]",
        "budget.uplink.others=0.7",
        "budget.downlink=inf",
    ]
    run = write_run(tmp_path, 1, *overrides)
    assert [run.budget(knob) for knob in KNOBS] == [pytest.approx(0.3), pytest.approx(0.3), None]


# Export ------------------------------------------------------------------------------------


def read_table(path: Path) -> dict[str, list[Any]]:
    """Columns; None where there is nothing."""
    if path.suffix == ".parquet":
        columns: dict[str, list[Any]] = pyarrow.parquet.read_table(path).to_pydict()
        return columns
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    numbers = [[None if cell == "" else float(cell) for cell in row] for row in rows[1:]]
    return {name: [row[index] for row in numbers] for index, name in enumerate(rows[0])}


def as_columns(table: dict[str, Any]) -> dict[str, list[Any]]:
    return {
        name: [None if math.isnan(value) else value for value in column.tolist()]
        for name, column in table.items()
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_export(tmp_path: Path, kind: str) -> None:
    path, out = tmp_path / "run", tmp_path / "new" / "tables"
    with open_run(path) as directory:
        for iteration in range(3):
            nothing = {"downlink_queue": math.nan} if iteration == 1 else {}
            directory.store.add_iteration({**record(iteration), **nothing})
        directory.store.add_evaluation(0, {**evaluation(0), "test_accuracy": None, "train_loss": 1 / 3})
        directory.store.commit(by_client=True)
    files = export_run(path, out, kind)
    assert files == [out / f"{name}.{kind}" for name in ("evaluations", "iterations", "clients")]
    evaluations, iterations, clients = (read_table(file) for file in files)
    run = Run(path)
    assert evaluations == as_columns(run.evaluations)
    assert evaluations["test_accuracy"] == [None]
    assert iterations == as_columns(run.iterations)
    assert iterations["downlink_queue"][1] is None
    assert list(iterations) == ["iteration", *ITERATION_COLUMNS]

    assert list(clients) == ["iteration", "client", *CLIENT_COLUMNS]
    assert clients["iteration"] == [t for t in range(3) for _ in range(CLIENTS)]
    assert clients["client"] == list(range(CLIENTS)) * 3
    for name in CLIENT_COLUMNS:
        assert clients[name] == [value for t in range(3) for value in record(t)[name].tolist()]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_without_records_by_client_there_is_no_such_table(tmp_path: Path, kind: str) -> None:
    write_run(tmp_path)
    files = export_run(tmp_path, tmp_path, kind)
    assert [file.name for file in files] == [f"evaluations.{kind}", f"iterations.{kind}"]


def test_counts_read_as_whole_numbers(tmp_path: Path) -> None:
    write_run(tmp_path)
    export_run(tmp_path, tmp_path, "csv")
    export_run(tmp_path, tmp_path, "parquet")
    assert (tmp_path / "iterations.csv").read_text(encoding="utf-8").splitlines()[1].startswith("0,")
    schema = pyarrow.parquet.read_schema(tmp_path / "iterations.parquet")
    assert str(schema.field("computed").type) == "int64"
    assert str(schema.field("batch_loss").type) == "double"


def test_a_run_that_cannot_be_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(tmp_path / "run") as directory:
        directory.store.add_iteration(record(0))
        directory.store.commit()
    before = {path.name for path in (tmp_path / "run").iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert len(Run(tmp_path / "run").iterations["iteration"]) == 1
    assert {path.name for path in (tmp_path / "run").iterdir()} == before
    with pytest.raises(FlexFLError, match=r"must be a writable folder .*Permission denied.*out=…"):
        export_run(tmp_path / "run", tmp_path / "tables", "csv")


def test_a_folder_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").mkdir()
    with pytest.raises(RunDirectoryError, match="choose another out=…"):
        open_run(tmp_path / "run")
