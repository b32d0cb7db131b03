"""The writing side of a run directory: one writer, whole checkpoints, never another run's files."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.errors import RunDirectoryError
from flexfl.results.checkpoint import Arrays, read_checkpoint, write_checkpoint
from flexfl.results.files import write_text
from flexfl.results.observer import Observer, Progress, RunInfo
from flexfl.results.partition import Partition
from flexfl.results.run import (
    METRICS_FILE,
    PARTITION_FILE,
    SPEC_FILE,
    SUMMARY_FILE,
    Run,
    flatten,
    read_spec,
    summarise,
)
from flexfl.results.store import MetricStore

MAY_CHANGE = {
    "train.iterations",
    "train.duration",
    "engine.checkpoint_every",
    "engine.threads",
    "deploy.deadline",
    "deploy.wait",
}
"""Settings that may differ when a run is resumed: they change no result beyond rounding."""


class RunDirectory:
    """A run directory, locked by this process; use it as a context manager.

    Args:
        path: The directory; created if it does not exist.
        spec_toml: The resolved spec of the run.
        identity: What the spec does not contain: digests of the data and of the model's shapes.
        objects: What objects of the run are, as text by name (`flexfl.identity`).
        resume: Continue the run in `path`, if there is one.
        partition: Stored for reports; a run started without one gets it when it is resumed.

    Raises:
        RunDirectoryError: The directory cannot be used, or holds another run.
    """

    def __init__(
        self,
        path: Path,
        spec_toml: str,
        identity: Mapping[str, str],
        *,
        resume: bool,
        partition: Partition | None = None,
        objects: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        _holds_run(path, resume)  # before the lock: a folder that is refused stays as it is
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"{path} cannot be created ({error.strerror}); choose another out=…"
            raise RunDirectoryError(reason) from error
        self._lock = _lock(path)
        try:
            exists = _holds_run(path, resume)  # again: another process may have been here meanwhile
            wanted = tomllib.loads(spec_toml)
            threads = wanted.get("engine", {}).get("threads")
            before = read_spec(path).get("engine", {}).get("threads") if exists else threads
            if exists:
                refuse_other_spec(path, differences(path, wanted))
            else:
                # The spec is written last: without it, these files are left from an aborted start.
                for entry in _entries(path):
                    if entry.name != ".lock":
                        entry.unlink()
            self.store = MetricStore(path / METRICS_FILE, create=not exists)
            if exists:
                self.store.check()
            self._check_identity(identity, fresh=not exists)
            self._check_objects(objects or {}, fresh=not exists)
            self._check_length(wanted["train"]["iterations"])
            self._state = self._read_state()
            if before != threads:
                self.note(f"resumed with {threads} threads instead of {before}: sums may round differently")
        except BaseException:
            os.close(self._lock)
            raise
        if partition is not None and not (path / PARTITION_FILE).exists():
            write_text(path / PARTITION_FILE, partition.to_json())
        write_text(path / SPEC_FILE, spec_toml)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        os.close(self._lock)

    def note(self, text: str) -> None:
        """Keep a remark about the run for its summary and reports; the same one once."""
        found = json.loads(self.store.meta("notes") or "[]")
        if text not in found:
            self.store.set_meta("notes", json.dumps([*found, text]))

    def note_start(self, params: NDArray[Any]) -> None:
        """Keep a digest of x₀ when the run begins: runs of one seed with another one are another group."""
        if self.store.meta("start") is None:
            digest = hashlib.blake2b(np.ascontiguousarray(params).tobytes(), digest_size=6).hexdigest()
            self.store.set_meta("start", digest)

    def last_state(self) -> dict[str, NDArray[np.generic]] | None:
        """Return the newest checkpoint and rewind the metrics to it; None if there is no checkpoint."""
        state, self._state = self._state, None
        found = self.store.checkpoint()
        self.rewind(0 if found is None else found[0])
        return state

    def rewind(self, iteration: int) -> None:
        """Delete what was recorded from `iteration` on, to continue from there."""
        self.store.rewind(iteration)
        (self.path / SUMMARY_FILE).unlink(missing_ok=True)  # written again when the run ends

    def _read_state(self) -> dict[str, NDArray[np.generic]] | None:
        found = self.store.checkpoint()
        if found is None:
            return None
        try:
            return read_checkpoint(self.path / found[1], found[2])
        except RunDirectoryError:
            self.store.close()
            raise

    def checkpoint(self, iteration: int, arrays: Arrays, *, by_client: bool) -> None:
        """Save state and metrics; after a crash at any point, this checkpoint or the previous one is valid.

        Args:
            iteration: The next iteration, which starts from this state.
            arrays: The state.
            by_client: Whether to keep metrics of every client, too.
        """
        name = f"checkpoint-{iteration:08d}.safetensors"
        digest = write_checkpoint(self.path / name, arrays)
        self.store.commit(checkpoint=(iteration, name, digest), by_client=by_client)
        for old in self.path.glob("checkpoint-*"):
            if old.name != name:
                old.unlink()

    def summarise(self, seconds: float) -> dict[str, Any]:
        """Return the summary of what was committed; `seconds` is the time in training."""
        return summarise(Run(self.path), seconds=seconds)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json, whole or not at all."""
        write_text(self.path / SUMMARY_FILE, json.dumps(summary, indent=2) + "\n")

    def _check_length(self, iterations: int) -> None:
        """Raise if the run has done more iterations than requested."""
        found = self.store.checkpoint()
        if found is not None and found[0] > iterations:
            self.store.close()
            raise RunDirectoryError(
                f"train.iterations must be at least the {found[0]} that {self.path} has done, "
                f"got {iterations}; set it to that or more, or to a number at which the run was "
                "evaluated, or choose another out=…"
            )

    def _check_identity(self, identity: Mapping[str, str], *, fresh: bool) -> None:
        for key, value in identity.items():
            if fresh:
                self.store.set_meta(key, value)
            elif (found := self.store.meta(key)) != value:
                self.store.close()
                raise RunDirectoryError(
                    f"{self.path} belongs to another run: its {key} is {found}, got {value}; "
                    f"use the same {key}, or choose another out=…"
                )

    def _check_objects(self, objects: Mapping[str, str], *, fresh: bool) -> None:
        if fresh:
            self.store.set_meta("objects", json.dumps(dict(objects)))
            return
        stored = json.loads(self.store.meta("objects") or "{}")
        differ = _differences(stored, objects)
        if differ:
            self.store.close()
            refuse_other_spec(self.path, differ)


def _holds_run(path: Path, resume: bool) -> bool:
    """Return whether a folder holds a run.

    Raises:
        RunDirectoryError: There is one, which is not to be resumed; or the folder holds something else.
    """
    if (path / SPEC_FILE).exists():
        if not resume:
            remedy = "add resume=True to continue it, or choose another out=…"
            raise RunDirectoryError(f"{path} already holds a run; {remedy}")
        return True
    if path.exists() and not _is_aborted_start(_entries(path)):
        raise RunDirectoryError(f"{path} is not empty and holds no run; choose another out=…")
    return False


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except NotADirectoryError as error:
        raise RunDirectoryError(f"{path} must be a folder, got a file; choose another out=…") from error


_LEFTOVERS = {".lock", f"{SPEC_FILE}.partial", PARTITION_FILE, f"{PARTITION_FILE}.partial"} | {
    METRICS_FILE + end for end in ("", "-wal", "-shm", "-journal")
}


def _is_aborted_start(entries: list[Path]) -> bool:
    """Return whether a folder is empty, or holds only what a start writes before the spec.

    The lock is created first, so it must be among the files.
    """
    known = all(entry.is_file() and entry.name in _LEFTOVERS for entry in entries)
    return not entries or (known and any(entry.name == ".lock" for entry in entries))


def _lock(path: Path) -> int:
    try:
        handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        reason = f"{path} cannot be written ({error.strerror}); choose another out=…"
        raise RunDirectoryError(reason) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RunDirectoryError(f"{path} is in use by another process; wait for it, or stop it") from error
    return handle


def differences(path: Path, requested: Mapping[str, Any]) -> list[str]:
    """List the settings in which the run in `path` differs from the requested spec, as text."""
    stored, wanted = (
        {
            key: value
            for key, value in flatten(settings).items()
            if key not in MAY_CHANGE and not key.startswith("track.")  # trackers only look on
        }
        for settings in (read_spec(path), requested)
    )
    return _differences(stored, wanted)


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} is {stored.get(key, 'not set')!r} there, got {wanted.get(key, 'not set')!r}"
        for key in sorted(stored.keys() | wanted.keys())
        if stored.get(key) != wanted.get(key)
    ]


def refuse_other_spec(path: Path, differ: list[str], others: int = 0) -> None:
    """Raise if the run in `path` has another spec than requested.

    Args:
        path: The run directory.
        differ: The differences, as `differences` lists them.
        others: How many more run directories have another spec.

    Raises:
        RunDirectoryError: There are differences; the message lists them.
    """
    if differ:
        lines = [f"  {difference}" for difference in differ] + [f"and {others} more do"] * bool(others)
        remedy = "use the same settings, or choose another out=…"
        raise RunDirectoryError("\n".join([f"{path} belongs to another run:", *lines, remedy]))


class DirectoryWriter(Observer):
    """Write iterations, evaluations, checkpoints and the summary of a run to its directory.

    Rows are buffered and written together: with each checkpoint, by `commit`, and every `commit_every`
    seconds. A run calls it like any other observer; what only the directory can do stands beside:

        writer = DirectoryWriter(directory, by_client=True)
        …                                         # begin, iteration, evaluated, checkpoint
        summary = writer.summarise(progress)      # commits, and reads what was written
        observers.end(progress, summary)          # writes summary.json

    Args:
        directory: open for this run.
        by_client: record each client's numbers, too.
        commit_every: seconds between two commits besides; ∞ for none. Rows past the last checkpoint are for
            those who look on: `RunDirectory.last_state` forgets them.
    """

    def __init__(self, directory: RunDirectory, by_client: bool, commit_every: float = 2.0) -> None:
        self._directory, self._by_client, self._commit_every = directory, by_client, commit_every
        self._committed = time.monotonic()

    def begin(self, run: RunInfo) -> None:
        self._directory.store.set_meta("units", json.dumps(dict(run.units)))

    def iteration(self, progress: Progress, record: Mapping[str, Any]) -> None:
        self._directory.store.add_iteration(record)
        if time.monotonic() - self._committed > self._commit_every:
            self.commit()

    def evaluated(self, progress: Progress, metrics: Mapping[str, float | None]) -> None:
        row = {"seconds": progress.seconds, **metrics}
        self._directory.store.add_evaluation(progress.iteration, row)

    def checkpoint(self, progress: Progress, state: Mapping[str, NDArray[Any]]) -> None:
        """Write the state, with the seconds of training so far as "seconds", (1,)."""
        arrays = {**state, "seconds": np.array([progress.seconds])}
        self._directory.checkpoint(progress.iteration, arrays, by_client=self._by_client)
        self._committed = time.monotonic()

    def end(self, progress: Progress, summary: Mapping[str, Any]) -> None:
        self.commit()
        self._directory.write_summary(summary)

    def commit(self) -> None:
        """Write what is buffered; when it returns, it is on the disk."""
        self._directory.store.commit(by_client=self._by_client)
        self._committed = time.monotonic()

    def summarise(self, progress: Progress, **more: Any) -> dict[str, Any]:
        """Commit, and return the summary of the run so far, with `more` in it, to be passed to `end`."""
        self.commit()
        return self._directory.summarise(progress.seconds) | more
