"""Durable state: named values that change together or not at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.numpy as safetensors
from numpy.typing import NDArray

from flexfl.errors import FlexFLError
from flexfl.state import State
from flexfl.wire.sparse import WireError

_FORMAT = "2"
_FLOATS = {b"<f4": 4, b"<f8": 8}


class Store(Protocol):
    """What a state machine remembers across crashes: bytes by name."""

    def load(self) -> dict[str, bytes]:
        """Return all values as of the last commit."""
        ...

    def commit(self, changes: Mapping[str, bytes | None]) -> None:
        """Set these values (None removes one); when it returns, they are on the disk."""
        ...


class InUseError(FlexFLError):
    """Another process has the file open; it may be about to end."""


class SqliteStore:
    """One file, one writer; a crash at any moment leaves the last commit."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise FlexFLError(f"{path} cannot be opened ({error})") from error
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
            self._db.execute("INSERT OR IGNORE INTO state VALUES ('format', ?)", (_FORMAT.encode(),))
            found = self._db.execute("SELECT value FROM state WHERE name = 'format'").fetchone()
        except sqlite3.DatabaseError as error:
            self._db.close()
            if "locked" in str(error):
                raise InUseError(f"{path} is in use by another process; stop it first") from error
            raise FlexFLError(f"{path} holds no state of a deployment ({error})") from error
        if found[0] != _FORMAT.encode():
            self._db.close()
            raise FlexFLError(f"{path} has format {found[0]!r}, this version reads {_FORMAT}")

    def load(self) -> dict[str, bytes]:
        rows = self._db.execute("SELECT name, value FROM state WHERE name != 'format'")
        return {name: bytes(value) for name, value in rows}

    def commit(self, changes: Mapping[str, bytes | None]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for name, value in changes.items():
                if value is None:
                    self._db.execute("DELETE FROM state WHERE name = ?", (name,))
                else:
                    self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file; another process may open it then."""
        self._db.close()


def pack(array: NDArray[Any]) -> bytes:
    """Return an array of floats as bytes, with its type."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.dtype.str.encode() + b" " + little.tobytes()


def unpack(value: bytes) -> NDArray[Any]:
    """Return the array of floats in `value`, (D,); trusts nothing.

    Raises:
        WireError: there is none.
    """
    kind, _, content = value.partition(b" ")
    if kind not in _FLOATS or len(content) % _FLOATS[kind]:
        raise WireError(f"array must be of floats with 4 or 8 bytes each, got kind {kind[:8]!r}")
    return np.frombuffer(content, dtype=kind.decode()).copy()


def pack_json(value: Any) -> bytes:
    """Return numbers, texts, lists and tables as bytes; floats keep every digit."""
    return json.dumps(value, allow_nan=False).encode()


def pack_state(state: State) -> bytes:
    """Return a memory (`flexfl.state`) as bytes: arrays of any shape and type of number, never pickle."""
    # Copied: safetensors writes the buffer of an array that is not contiguous as if it were.
    return bytes(safetensors.save({name: np.array(value, order="C") for name, value in state.items()}))


def unpack_state(value: bytes) -> State:
    """Return the memory that `pack_state` wrote."""
    return dict(safetensors.load(value))
