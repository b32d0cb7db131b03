"""Metrics of a run in one SQLite file: complete iterations, each stored exactly once, even after a crash.

Rows are buffered and committed in one transaction together with the name and digest of the
checkpoint they lead up to. A run that resumes from a checkpoint first deletes what was
recorded after it, so there are no gaps and no duplicate rows.
"""

from __future__ import annotations

import math
import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from flexfl.arrays import FloatArray
from flexfl.errors import RunDirectoryError
from flexfl.results.columns import (
    CLIENT_COLUMNS,
    COMPUTED,
    EVALUATION_COLUMNS,
    ITERATION_COLUMNS,
    PER_CLIENT,
    PER_ITERATION,
    QUANTILES,
    SUMMED,
)

FORMAT = 3


def _table(name: str, columns: Sequence[str], kind: str) -> str:
    listed = ", ".join(f"{column} {kind}" for column in columns)
    return f"CREATE TABLE IF NOT EXISTS {name} (iteration INTEGER PRIMARY KEY, {listed})"


_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS checkpoints (iteration INTEGER PRIMARY KEY, file TEXT, digest TEXT)",
    _table("iterations", ITERATION_COLUMNS, "REAL"),
    _table("evaluations", EVALUATION_COLUMNS, "REAL"),
    _table("clients", CLIENT_COLUMNS, "BLOB"),
    _table("totals", SUMMED, "BLOB"),  # after how many iterations
)


class MetricStore:
    """The metrics of one run, for writing and reading.

    Raises:
        RunDirectoryError: The file is missing, damaged, or not one that this version reads. Every method
            raises it for a file that turns out to be damaged.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.exists():
            remedy = "restore it from a backup, or run spec.toml again"
            raise RunDirectoryError(f"{path.parent} holds no run ({path.name} is missing); {remedy}")
        self.path = path
        self._buffer: list[Mapping[str, Any]] = []
        self._evaluations: list[tuple[float | None, ...]] = []
        self._totals: dict[str, FloatArray] | None = None  # read when the next iteration is added
        writable = os.access(path.parent, os.W_OK) and (create or os.access(path, os.W_OK))
        where = str(path) if writable else f"{path.absolute().as_uri()}?immutable=1"
        self._db = sqlite3.connect(where, isolation_level=None, check_same_thread=False, uri=not writable)
        try:
            if writable:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
            if create:
                for statement in _SCHEMA:
                    self._db.execute(statement)
                self.set_meta("format", str(FORMAT))
            found = self.meta("format")
        except RunDirectoryError:
            self._db.close()
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self._db.close()
            raise _damaged(path, error) from error
        if found != str(FORMAT):
            self._db.close()
            raise RunDirectoryError(
                f"{path} has format {found}, this version reads {FORMAT}; start the run again"
            )

    def close(self) -> None:
        """Close the file; rows that are not committed are lost."""
        self._db.close()

    def check(self) -> None:
        """Look for damage in the whole file, and for columns that are missing, before it is written to.

        Close it and raise `RunDirectoryError` if there is any.
        """
        try:
            with self._readable():
                (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise ValueError(" ".join(str(found).split()))
                tables = {"iterations": ITERATION_COLUMNS, "evaluations": EVALUATION_COLUMNS}
                new = [
                    name for table, columns in tables.items() for name in set(columns) - self._known(table)
                ]
            if new:
                reason = f"was begun by an earlier version, without {', '.join(sorted(new))}"
                raise RunDirectoryError(f"{self.path} {reason}; it can be read, but not resumed")
        except RunDirectoryError:
            self.close()
            raise

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise what SQLite and NumPy find wrong with the file as a `RunDirectoryError`."""
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise _damaged(self.path, error) from error

    # Metadata ----------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """Return the metadata stored under `key`; None if there is none."""
        with self._readable():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        """Store metadata at once, without `commit`."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # Writing -----------------------------------------------------------------------------

    def add_iteration(self, record: Mapping[str, Any]) -> None:
        """Buffer one iteration: `iteration`, the PER_ITERATION numbers and the CLIENT_COLUMNS arrays (N,)."""
        before = self.totals(int(record["iteration"])) if self._totals is None else self._totals
        # One iteration at a time: the sums of a resumed run are those of an uninterrupted one, bit for bit.
        self._totals = {name: before[name] + np.asarray(record[name], dtype=float) for name in SUMMED}
        self._buffer.append(record)

    def add_evaluation(self, iteration: int, values: Mapping[str, float | None]) -> None:
        """Buffer one evaluation of the parameters that iteration `iteration` starts from."""
        row = (iteration, *(_or_null(values.get(name)) for name in EVALUATION_COLUMNS))
        self._evaluations.append(row)

    def commit(self, *, checkpoint: tuple[int, str, str] | None = None, by_client: bool = False) -> None:
        """Write the buffered rows, and the checkpoint they lead up to, in one transaction.

        Args:
            checkpoint: Its iteration, file name and digest.
            by_client: Whether to keep metrics of every client, too.
        """
        rows = _summarise(self._buffer)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._insert("iterations", ITERATION_COLUMNS, rows)
            self._insert("evaluations", EVALUATION_COLUMNS, self._evaluations)
            if by_client:
                blobs = [
                    (record["iteration"], *(_blob(record[name]) for name in CLIENT_COLUMNS))
                    for record in self._buffer
                ]
                self._insert("clients", CLIENT_COLUMNS, blobs)
            if checkpoint is not None:
                self._db.execute("DELETE FROM checkpoints")
                self._db.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", checkpoint)
            self._insert_totals()
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._buffer, self._evaluations = [], []

    def _insert_totals(self) -> None:
        """Write the sums up to now; keep only these and those of the checkpoint."""
        if not self._buffer or self._totals is None:
            return
        done = int(self._buffer[-1]["iteration"]) + 1
        self._insert("totals", SUMMED, [(done, *(_blob(self._totals[name]) for name in SUMMED))])
        kept = "iteration NOT IN (SELECT iteration FROM checkpoints)"
        self._db.execute(f"DELETE FROM totals WHERE iteration < ? AND {kept}", (done,))

    def rewind(self, iteration: int) -> None:
        """Delete what was recorded from `iteration` on."""
        self._totals = None
        with self._readable():
            self._db.execute("DELETE FROM totals WHERE iteration > ?", (iteration,))
            for table in ("iterations", "evaluations", "clients"):
                self._db.execute(f"DELETE FROM {table} WHERE iteration >= ?", (iteration,))

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        named, placeholders = ", ".join(("iteration", *columns)), ", ".join("?" * (len(columns) + 1))
        self._db.executemany(f"INSERT INTO {table} ({named}) VALUES ({placeholders})", rows)

    # Reading -----------------------------------------------------------------------------

    def checkpoint(self) -> tuple[int, str, str] | None:
        """Return iteration, file name and digest of the newest checkpoint; None if there is none."""
        with self._readable():
            row = self._db.execute("SELECT * FROM checkpoints ORDER BY iteration DESC").fetchone()
            return None if row is None else (int(row[0]), str(row[1]), str(row[2]))

    def reached(self, iterations: int) -> bool:
        """Return whether this many iterations are recorded and the model was evaluated after them."""
        at = "SELECT COUNT(*) FROM evaluations WHERE iteration = ?"
        with self._readable():
            rows = self._db.execute("SELECT COUNT(*) FROM iterations").fetchone()[0]
            return int(rows) >= iterations and bool(self._db.execute(at, (iterations,)).fetchone()[0])

    def iterations(self) -> dict[str, FloatArray]:
        """Return one row per iteration, as columns; NaN where a metric is missing."""
        return self._columns("iterations", ITERATION_COLUMNS)

    def evaluations(self) -> dict[str, FloatArray]:
        """Return one row per evaluation, as columns."""
        return self._columns("evaluations", EVALUATION_COLUMNS)

    def clients(self) -> dict[str, FloatArray]:
        """Return the metrics of every client, (T, N); no rows unless the run recorded them."""
        with self._readable():
            rows = self._db.execute("SELECT * FROM clients ORDER BY iteration").fetchall()
            table: dict[str, FloatArray] = {"iteration": np.array([row[0] for row in rows], dtype=float)}
            for index, name in enumerate(CLIENT_COLUMNS, start=1):
                table[name] = np.array([np.frombuffer(row[index]) for row in rows])
            return table

    def totals(self, iterations: int) -> dict[str, FloatArray]:
        """Return the sums of the SUMMED columns over the first iterations, (N,); NaN where they are unknown.

        They are known for all that was added, and for the newest checkpoint; where each client's numbers
        are recorded, for any number of iterations.
        """
        if self._totals is not None and self._buffer and self._buffer[-1]["iteration"] == iterations - 1:
            return self._totals
        with self._readable():
            row = self._db.execute("SELECT * FROM totals WHERE iteration = ?", (iterations,)).fetchone()
            if row is not None:
                return {name: np.frombuffer(row[index]) for index, name in enumerate(SUMMED, start=1)}
        if iterations == 0:
            return dict.fromkeys(SUMMED, np.zeros(()))
        clients = self.clients()
        recorded = np.array_equal(clients["iteration"][:iterations], np.arange(iterations))
        unknown = np.asarray(np.nan)
        return {name: clients[name][:iterations].sum(axis=0) if recorded else unknown for name in SUMMED}

    def _columns(self, table: str, columns: Sequence[str]) -> dict[str, FloatArray]:
        """Return a table; NaN for columns that a run of an earlier version does not have."""
        with self._readable():
            known = self._known(table)
            wanted = ", ".join(name if name in known else "NULL" for name in columns)
            rows = self._db.execute(f"SELECT iteration, {wanted} FROM {table} ORDER BY iteration").fetchall()
            values = np.array(rows, dtype=float).reshape(len(rows), 1 + len(columns))
        return dict(zip(("iteration", *columns), values.T, strict=True))

    def _known(self, table: str) -> set[str]:
        return {str(row[1]) for row in self._db.execute(f"PRAGMA table_info({table})")}


def _damaged(path: Path, error: Exception) -> RunDirectoryError:
    """Return what to say of a file that SQLite or NumPy cannot make sense of."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    reason = "".join(letter for letter in str(error) if letter.isprintable())
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):  # another file, or other tables in it
        return RunDirectoryError(f"{path} is not a run's metrics ({reason}); restore it from a backup")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return RunDirectoryError(f"{path} cannot be used now ({reason}); correct that, and try again")
    return RunDirectoryError(
        f"{path} is damaged ({reason}): its metrics cannot be read. The other files beside it are as they "
        "were; restore it from a backup, or run the spec.toml there again in another out=…"
    )


def _summarise(records: Sequence[Mapping[str, Any]]) -> list[tuple[float | None, ...]]:
    """Return rows with mean and quantiles over clients, for a whole buffer at once."""
    if not records:
        return []
    columns: dict[str, Any] = {name: [record[name] for record in records] for name in PER_ITERATION}
    columns["computed"] = [float(np.sum(record[COMPUTED])) for record in records]
    for name in PER_CLIENT:
        values = np.array([record[name] for record in records], dtype=float)  # (T, N)
        mean, quantile_of = (np.nanmean, np.nanquantile) if np.isnan(values).any() else (np.mean, np.quantile)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NaN for an iteration in which no client has one
            columns[f"{name}_mean"] = mean(values, axis=1)
            quantiles = quantile_of(values, list(QUANTILES.values()), axis=1)
        for label, quantile in zip(QUANTILES, quantiles, strict=True):
            columns[f"{name}_{label}"] = quantile
    listed = [columns[name] for name in ITERATION_COLUMNS]
    return [
        (record["iteration"], *(_or_null(column[row]) for column in listed))
        for row, record in enumerate(records)
    ]


def _or_null(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _blob(values: Any) -> bytes:
    return np.asarray(values, dtype=np.float64).tobytes()
