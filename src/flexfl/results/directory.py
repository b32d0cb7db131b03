"""The writing side of a run directory: one writer, whole checkpoints, never another run's files."""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.errors import RunDirectoryError
from flexfl.results.checkpoint import Arrays, read_checkpoint, write_checkpoint
from flexfl.results.partition import Partition
from flexfl.results.run import (
    METRICS_FILE,
    PARTITION_FILE,
    SPEC_FILE,
    SUMMARY_FILE,
    Run,
    read_spec,
    summarise,
)
from flexfl.results.store import MetricStore

_MAY_CHANGE = {"train.iterations", "engine.checkpoint_every", "deploy.deadline", "deploy.wait"}
"""Settings that a run may be resumed with: they do not change what an iteration does, or only how long it
waits."""


class RunDirectory:
    """Open for one run by one process; use as a context manager.

    identity names what the spec cannot tell: digests of the data and of the model's shapes.
    partition is kept for reports; a run that was started without gets it when it is resumed.
    """

    def __init__(
        self,
        path: Path,
        spec_toml: str,
        identity: Mapping[str, str],
        *,
        resume: bool,
        partition: Partition | None = None,
    ) -> None:
        self.path = path
        exists = (path / SPEC_FILE).exists()
        if exists and not resume:
            raise RunDirectoryError(
                f"{path} already holds a run; add --resume to go on with it, or choose another --out"
            )
        if not exists and path.exists() and not _is_cut_short(_entries(path)):
            raise RunDirectoryError(f"{path} is not empty and holds no run; choose another --out")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"{path} cannot be made ({error.strerror}); choose another --out"
            raise RunDirectoryError(reason) from error
        self._lock = _lock(path)
        try:
            if exists:
                refuse_other_spec(path, differences(path, tomllib.loads(spec_toml)))
            else:
                # The spec is written last: without it, whatever lies here is of a start cut short.
                for entry in _entries(path):
                    if entry.name != ".lock":
                        entry.unlink()
            self.store = MetricStore(path / METRICS_FILE, create=not exists)
            self._check_identity(identity, fresh=not exists)
            self._check_length(tomllib.loads(spec_toml)["train"]["iterations"])
            self._state = self._read_state()
        except BaseException:
            os.close(self._lock)
            raise
        if partition is not None and not (path / PARTITION_FILE).exists():
            _write_text(path / PARTITION_FILE, partition.to_json())
        _write_text(path / SPEC_FILE, spec_toml)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        os.close(self._lock)

    def last_state(self) -> dict[str, NDArray[np.generic]] | None:
        """The newest checkpoint, with the metrics rewound to it; None for a run that has none."""
        state, self._state = self._state, None
        found = self.store.checkpoint()
        self.rewind(0 if found is None else found[0])
        return state

    def rewind(self, iteration: int) -> None:
        """Go on from `iteration`: what was recorded past it is forgotten."""
        self.store.rewind(iteration)
        (self.path / SUMMARY_FILE).unlink(missing_ok=True)  # it comes back when the run ends

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
        """Save state and metrics; after a crash at any point either this or the previous stands."""
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
        _write_text(self.path / SUMMARY_FILE, json.dumps(summary, indent=2) + "\n")

    def _check_length(self, iterations: int) -> None:
        """A run cannot become shorter than it is."""
        found = self.store.checkpoint()
        if found is not None and found[0] > iterations:
            self.store.close()
            raise RunDirectoryError(
                f"train.iterations must be at least the {found[0]} that {self.path} has done, "
                f"got {iterations}; ask for more, or for a number at which it was evaluated, "
                "or choose another --out"
            )

    def _check_identity(self, identity: Mapping[str, str], *, fresh: bool) -> None:
        for key, value in identity.items():
            if fresh:
                self.store.set_meta(key, value)
            elif (found := self.store.meta(key)) != value:
                self.store.close()
                raise RunDirectoryError(
                    f"{self.path} belongs to another run: its {key} is {found}, got {value}; "
                    f"bring the same {key}, or choose another --out"
                )


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except NotADirectoryError as error:
        raise RunDirectoryError(f"{path} must be a folder, got a file; choose another --out") from error


_LEFTOVERS = {".lock", f"{SPEC_FILE}.partial", PARTITION_FILE, f"{PARTITION_FILE}.partial"} | {
    METRICS_FILE + end for end in ("", "-wal", "-shm", "-journal")
}


def _is_cut_short(entries: list[Path]) -> bool:
    """Nothing, or what a start leaves before the spec is there; it makes the lock first."""
    ours = all(entry.is_file() and entry.name in _LEFTOVERS for entry in entries)
    return not entries or (ours and any(entry.name == ".lock" for entry in entries))


def _lock(path: Path) -> int:
    try:
        handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        reason = f"{path} cannot be written ({error.strerror}); choose another --out"
        raise RunDirectoryError(reason) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RunDirectoryError(f"{path} is in use by another process; wait for it, or stop it") from error
    return handle


def differences(path: Path, asked: Mapping[str, Any]) -> list[str]:
    """In which settings the run in `path` is another than the one asked for, in words."""
    there, here = _flat(read_spec(path)), _flat(asked)
    return [
        f"{key} is {there.get(key, 'not set')!r} there, got {here.get(key, 'not set')!r}"
        for key in sorted(there.keys() | here.keys())
        if key not in _MAY_CHANGE and there.get(key) != here.get(key)
    ]


def refuse_other_spec(path: Path, differ: list[str], others: int = 0) -> None:
    """Tell what sets the run in `path` apart from the one asked for; `others` are as wrong as it is."""
    if differ:
        lines = [f"  {difference}" for difference in differ] + [f"and {others} more do"] * bool(others)
        remedy = "ask for the same settings, or choose another --out"
        raise RunDirectoryError("\n".join([f"{path} belongs to another spec:", *lines, remedy]))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
