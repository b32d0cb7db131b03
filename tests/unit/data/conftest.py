"""A store, a web server and tools of the machine for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopback import Loopback

Tool = Callable[..., Path]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FLEXFL_DATA; it does not exist yet."""
    monkeypatch.setenv("FLEXFL_DATA", str(tmp_path / "store"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "store"


@pytest.fixture
def web() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Create a program, alone on the PATH, that prints a given text; return the file with its calls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))

    def make(name: str, out: bytes = b"", errors: bytes = b"", code: int = 0) -> Path:
        (programs / f"{name}.out").write_bytes(out)
        (programs / f"{name}.errors").write_bytes(errors)
        calls = programs / f"{name}.calls"
        script = programs / name
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {calls}\n'
            f"/bin/cat {script}.out\n/bin/cat {script}.errors >&2\nexit {code}\n",
            encoding="utf-8",
        )
        script.chmod(0o755)
        return calls

    return make
