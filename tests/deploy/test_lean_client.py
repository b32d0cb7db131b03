"""A client installs neither plotting nor a compiler, and takes part all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from deploy import lean_process
from deploy.in_memory import deploy, final_params, small_spec

SRC = lean_process.ROOT / "src"


def lean(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `lean_process`."""
    environment = os.environ | {"PYTHONPATH": str(SRC), "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, lean_process.__file__, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_client_needs_neither_plotting_nor_a_compiler() -> None:
    lacking = lean_process.absent()
    assert {"matplotlib", "plotly", "PIL", "numba", "llvmlite", "pyarrow", "ray"} <= lacking
    assert not {"torch", "numpy", "nvflare"} & lacking


def test_its_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((lean_process.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = project["dependencies"] + project["optional-dependencies"]["deploy"]
    assert set(lean_process.client_requirements()) <= set(stated)
    assert set(project["optional-dependencies"]["deploy"]) <= set(lean_process.client_requirements())


def test_a_federation_of_lean_installs_ends_with_the_same_bits(tmp_path: Path) -> None:
    done = lean("federation", str(tmp_path / "lean"))
    assert done.returncode == 0, done.stderr
    ours = final_params(tmp_path / "lean" / "server" / "run")
    np.testing.assert_array_equal(ours, final_params(deploy(tmp_path / "full", small_spec())))


def test_its_command_line_is_there() -> None:
    done = lean("flexfl", "deploy", "client", "no-such-kit")
    assert done.returncode == 2
    assert "no-such-kit" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("flexfl", "run", "quickstart", "--out", "nowhere"), ("simulate",)], ids=" ".join
)
def test_what_it_cannot_do_says_what_to_install(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = lean(*arguments)
    assert done.returncode != 0
    assert "which is not installed; in a clone: pip install '.', or from a wheel: pip install" in done.stderr
    assert ("Traceback" in done.stderr) == (arguments == ("simulate",))
    assert list(tmp_path.iterdir()) == []
