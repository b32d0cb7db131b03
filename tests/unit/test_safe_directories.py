"""Run directories that two processes want at once, and metrics with flipped bytes."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flexfl.cli.main import main
from flexfl.errors import RunDirectoryError
from flexfl.experiments.cell import Cell
from flexfl.experiments.finished import finished_run
from flexfl.report import write_report
from flexfl.results import Run, directory
from flexfl.results.directory import RunDirectory
from flexfl.results.export import export_run
from flexfl.results.store import MetricStore
from flexfl.spec import parse, to_toml
from runs import write_run

SPEC = "[train]\niterations = 4\nseed = 1\n"
IDENTITY = {"data": "d", "model": "m"}

# Another process, which makes a finished run in the directory that it is given.
OTHER = textwrap.dedent(
    f"""
    import sys
    from pathlib import Path
    from flexfl.results.directory import RunDirectory

    with RunDirectory(Path(sys.argv[1]), {SPEC!r}, {IDENTITY!r}, resume=False) as run:
        run.store.set_meta("mark", "finished")
        run.write_summary({{"iterations": 4}})
    """
)


def overtaken(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let another process make a whole run between the first look at the folder and the lock."""
    lock = directory._lock

    def late(folder: Path) -> int:
        monkeypatch.setattr(directory, "_lock", lock)
        subprocess.run([sys.executable, "-c", OTHER, str(path)], check=True, timeout=60)
        return lock(folder)

    monkeypatch.setattr(directory, "_lock", late)


def test_a_run_that_was_finished_meanwhile_is_not_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    overtaken(monkeypatch, path)
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        RunDirectory(path, SPEC, IDENTITY, resume=False)
    store = MetricStore(path / "metrics.sqlite")
    assert store.meta("mark") == "finished"
    store.close()
    assert (path / "summary.json").exists()


def test_a_run_that_was_begun_meanwhile_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    overtaken(monkeypatch, path)
    with RunDirectory(path, SPEC, IDENTITY, resume=True) as opened:
        assert opened.store.meta("mark") == "finished"


def test_two_processes_that_start_at_once_make_one_run(tmp_path: Path) -> None:
    """Whichever is first; the other is refused, and the metrics are those of the first."""
    path = tmp_path / "run"
    both = [
        subprocess.Popen([sys.executable, "-c", OTHER, str(path)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=60)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], errors
    refused = next(text for text in errors if text)
    assert "already holds a run" in refused or "in use by another process" in refused
    store = MetricStore(path / "metrics.sqlite")
    assert store.meta("mark") == "finished"
    store.close()


# Flipped bytes -----------------------------------------------------------------------------


def damaged(path: Path) -> Path:
    """A run whose table of iterations begins with flipped bytes; all else in the file is as it was."""
    write_run(path, iterations=60)
    file = path / "metrics.sqlite"
    with closing(sqlite3.connect(file)) as database:
        find = "SELECT rootpage FROM sqlite_master WHERE name = 'iterations'"
        (page,) = database.execute(find).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    content = bytearray(file.read_bytes())
    for place in range((page - 1) * size, page * size):
        content[place] ^= 255
    file.write_bytes(content)
    return path


READERS: dict[str, Callable[[Path, Path], Any]] = {
    "run": lambda run, out: Run(run),
    "report": lambda run, out: write_report([run], out),
    "export": lambda run, out: export_run(run, out, "csv"),
    "resume": lambda run, out: RunDirectory(
        run, (run / "spec.toml").read_text(encoding="utf-8"), {}, resume=True
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_damaged_metrics_are_named_with_what_to_do(tmp_path: Path, reader: str) -> None:
    run = damaged(tmp_path / "run")
    with pytest.raises(RunDirectoryError) as caught:
        READERS[reader](run, tmp_path / "out")
    message = str(caught.value)
    assert f"{run / 'metrics.sqlite'} is damaged" in message
    assert "restore it from a backup" in message
    assert not (tmp_path / "out").exists()


def test_the_command_says_the_same_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["flexfl", "export", str(damaged(tmp_path / "run"))])
    with pytest.raises(SystemExit):
        main()
    message = capsys.readouterr().err
    assert "is damaged" in message
    assert "another --out" in message


def test_a_sweep_does_not_stumble_over_damaged_metrics(tmp_path: Path) -> None:
    """The cell counts as unfinished; the attempt to resume it reports what is wrong."""
    run = damaged(tmp_path / "run")
    spec = parse({"train": {"iterations": 60, "seed": 1}, "engine": {"threads": 1}})
    (run / "spec.toml").write_text(to_toml(spec), encoding="utf-8")
    assert finished_run(Cell("cell", spec, run)) is None


@pytest.mark.parametrize("seed", range(5))
def test_no_flipped_byte_gives_a_raw_error(tmp_path: Path, seed: int) -> None:
    """A changed number may pass unnoticed; what SQLite or NumPy stumbles over is told in words."""
    run = write_run(tmp_path / "run", iterations=60)
    file, generator, refused = run / "metrics.sqlite", random.Random(seed), 0
    original = file.read_bytes()
    for turn in range(100):
        content = bytearray(original)
        width = generator.choice([1, 8, 64])
        start = generator.randrange((4096 if turn % 2 else len(content)) - width)
        for place in range(start, start + width):
            content[place] ^= generator.randrange(1, 256)
        file.write_bytes(content)
        try:
            assert Run(run).clients is not None
        except RunDirectoryError:
            refused += 1
        for rest in run.glob("metrics.sqlite-*"):
            rest.unlink()
    assert refused > 10
