"""Export of a run as tables for other tools."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexfl.arrays import FloatArray
from flexfl.extras import needed_for
from flexfl.results.columns import CLIENT_COLUMNS
from flexfl.results.files import create_output_folder
from flexfl.results.run import Run

Table = Mapping[str, NDArray[Any]]


def export_run(directory: Path, out: Path, kind: str) -> list[Path]:
    """Write evaluations, iterations and, where recorded, clients as tables.

    Args:
        directory: The run directory.
        out: The folder to write to.
        kind: "csv" or "parquet".

    Returns:
        The files written.
    """
    run = Run(directory)
    tables: dict[str, Table] = {"evaluations": run.evaluations, "iterations": run.iterations}
    if len(run.clients["iteration"]):
        tables["clients"] = _long_format(run.clients)
    write = _WRITERS[kind]
    create_output_folder(out)
    paths = [out / f"{name}.{kind}" for name in tables]
    for path, table in zip(paths, tables.values(), strict=True):
        write(path, {name: _as_integers(column) for name, column in table.items()})
    return paths


def _long_format(clients: Table) -> Table:
    """Return a table with one row per iteration and client."""
    iterations, count = clients[CLIENT_COLUMNS[0]].shape
    return {
        "iteration": np.repeat(clients["iteration"], count),
        "client": np.tile(np.arange(count, dtype=float), iterations),
    } | {name: clients[name].reshape(-1) for name in CLIENT_COLUMNS}


def _as_integers(column: FloatArray) -> NDArray[Any]:
    """Convert a column to integers if all its values are whole, so that counts read as such."""
    if len(column) and np.all(np.isfinite(column)) and np.all(column == np.rint(column)):
        return column.astype(np.int64)
    return column


def _write_csv(path: Path, table: Table) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        for row in zip(*(column.tolist() for column in table.values()), strict=True):
            writer.writerow(["" if value != value else value for value in row])


def _write_parquet(path: Path, table: Table) -> None:
    with needed_for("--format parquet"):
        import pyarrow
        import pyarrow.parquet
    columns = {name: pyarrow.array(column, from_pandas=True) for name, column in table.items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


_WRITERS: dict[str, Callable[[Path, Table], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
}
