"""Processes that fetch at once, and processes that are killed while they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flexfl.data import store
from flexfl.data.fetch import fetch
from loopback import Loopback
from tiny_data import DONE, FASHION, fashion, good, names

TESTS = Path(__file__).parents[2]


def command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def environment() -> dict[str, str]:
    given = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *([given] if given else [])])}


# For each step of the file system that placing takes (fsync and the like, in their order), a process
# that kills itself before it, in a store of its own. The second half finds a dataset there already.
VICTIMS = """
import os, pathlib, signal, sys
from flexfl.data import store
from tiny_data import FASHION, fashion

def counted(call, left):
    def step(*arguments, **options):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return step

def place(source, left):
    with store.locked(fashion()):
        os.fsync = counted(os.fsync, left)
        for name in ("write_text", "chmod", "rename"):
            setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name), left))
        store.save(fashion(), FASHION, source)

base, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for kind in ("placing", "replacing"):
    for step in range(1, steps + 1):
        child = os.fork()
        if not child:
            os.environ["FLEXFL_DATA"] = str(base / f"{kind}-{step}")
            if kind == "replacing":
                place("before", [0])
            place("after", [step])
            os._exit(0)
        print(kind, step, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ARRAYS_MANIFEST_MODE = 4 + 1 + 1


def test_kill_in_the_middle_of_placing(
    tmp_path: Path, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is the whole old one, none, or the whole new one; what was left behind goes next time."""
    steps = ARRAYS_MANIFEST_MODE + 3
    done = subprocess.run(
        command(VICTIMS, str(tmp_path / "stores"), str(steps)),
        env={**environment(), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    ends = {(kind, int(step)): int(code) for kind, step, code in map(str.split, done.stdout.splitlines())}
    assert len(ends) == 2 * steps, done.stderr
    entry = fashion(good(web))
    for (kind, step), code in ends.items():
        folder = tmp_path / "stores" / f"{kind}-{step}"
        monkeypatch.setenv("FLEXFL_DATA", str(folder))
        found = store.find(entry)
        renames = 2 if kind == "replacing" else 1
        if step <= ARRAYS_MANIFEST_MODE + 1:
            expected = "before" if kind == "replacing" else None
        else:
            expected = None if step <= ARRAYS_MANIFEST_MODE + renames else "after"
        assert code == (0 if expected == "after" else -signal.SIGKILL)
        assert (found and found.source) == expected
        assert found is None or found.faults() == []
        assert bool(list(folder.glob(".fashion-mnist-*"))) == (expected != "after")
        assert fetch(entry, again=True).faults() == []
        assert names(folder) == DONE


FETCHES = """
import sys
from flexfl.data.fetch import fetch
from flexfl.data.sources.web import OfficialArchive, Remote
from tiny_data import fashion
entry = fashion(OfficialArchive([Remote(sys.argv[1])]))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    print(fetch(entry, again=int(sys.argv[2]) > 1).faults(), flush=True)
"""


def fetching(web: Loopback, times: int) -> subprocess.Popen[str]:
    """A process that is ready to fetch that often."""
    process = subprocess.Popen(
        command(FETCHES, f"{web.url}/good.tar.gz", str(times)),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_kill_at_any_time(folder: Path, web: Loopback) -> None:
    """A process that fetches again and again, killed from outside."""
    entry = fashion(good(web))
    with fetching(web, 1000) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(3)] == ["[]\n"] * 3
        process.kill()
    found = store.find(entry)
    assert found is None or found.faults() == []
    assert fetch(entry, again=True).faults() == []
    assert names(folder) == DONE


def test_two_processes_at_once(web: Loopback) -> None:
    """One brings it, both have it."""
    entry = fashion(good(web))
    with fetching(web, 1) as process:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert fetch(entry).faults() == []
        assert process.communicate()[0] == "[]\n"
    assert process.returncode == 0
    assert len(web.requests) == 1


def test_one_who_waits_finds_what_was_brought(web: Loopback, folder: Path) -> None:
    """With the lock held here, so that the other surely waits."""
    program = """
from flexfl.data import store
from flexfl.data.fetch import fetch
from tiny_data import fashion
print("found" if store.find(fashion()) else "nothing yet", flush=True)
print(fetch(fashion()).source, flush=True)
"""
    with store.locked(fashion()):
        process = subprocess.Popen(command(program), env=environment(), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "nothing yet\n"
        store.save(fashion(), FASHION, "the first")
    assert process.communicate()[0] == "the first\n"
    assert process.returncode == 0
