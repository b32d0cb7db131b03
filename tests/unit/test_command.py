"""The ways to the command line and to the API: `python -m flexfl`, completion, `dir` and `help`."""

from __future__ import annotations

import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import flexfl
from flexfl.extras import MissingPackageError, how_to_install, needed_for
from flexfl.results.export import _write_parquet

BIN = Path(sys.executable).parent


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flexfl", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"flexfl {flexfl.__version__}\n"


COMPLETE = """
eval "$(_FLEXFL_COMPLETE=source_bash flexfl)"
complete -p flexfl > /dev/null || exit 3
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_flexfl_completion flexfl
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["flexfl", "re"], ["report"]),
        (["flexfl", "deploy", "pro"], ["provision"]),
        (["flexfl", "run", ""], ["cifar10", "demo", "fashion", "frugal", "quickstart"]),
        (["flexfl", "run", "quickstart", "--res"], ["--resume"]),
        (["flexfl", "run", "mine/"], [""]),  # the shell offers files
        (["flexfl", "data", "fetch", "fa"], ["fashion-mnist"]),
        (["flexfl", "sweep", "--on", ""], ["here", "ray"]),
        (["flexfl", "frontier", "qu"], ["quickstart"]),
        (["flexfl", "frontier", "quickstart", "--vary", "budget.d"], ["budget.downlink="]),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_completes(words: list[str], offered: list[str]) -> None:
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.removesuffix("\n").split("\n") == offered


def test_dir_shows_the_api_and_help_describes_it() -> None:
    assert dir(flexfl) == sorted(flexfl.__all__)
    for name in dir(flexfl):
        assert getattr(flexfl, name) is not None
    text = pydoc.plain(pydoc.render_doc(flexfl))
    for name in set(flexfl.__all__) - {"__version__"}:
        assert name in text
    assert "flexfl.simulate(" in text


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="did you mean simulate"):
        flexfl.simulat  # noqa: B018


@pytest.mark.parametrize(
    ("package", "command"),
    [("ray.util", "'.[ray]'"), ("pyarrow", "'.[parquet]'"), ("psutil", "'.[deploy]'"), ("numba", "'.'")],
)
def test_a_missing_package_is_named_with_what_brings_it(package: str, command: str) -> None:
    with pytest.raises(MissingPackageError) as caught, needed_for("this"):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    message = str(caught.value)
    assert message.startswith(f"this needs {package.partition('.')[0]}, which is not installed; ")
    assert f"in a clone: pip install {command}, or from a wheel: pip install 'flexfl_control-" in message


def test_a_module_of_the_users_own_that_is_missing_stays_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, needed_for("this"):
        import no_such_module_of_mine  # noqa: F401
    assert not isinstance(caught.value, MissingPackageError)


def test_an_extra_goes_behind_the_file() -> None:
    assert how_to_install("deploy").endswith("-py3-none-any.whl[deploy]'")


def test_parquet_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingPackageError, match=r"--format parquet needs pyarrow.*pip install '\.\[parquet\]'"
    ):
        _write_parquet(tmp_path / "table.parquet", {})
    assert list(tmp_path.iterdir()) == []


WITHOUT_NVFLARE = """
import sys
sys.modules["nvflare"] = None
sys.argv = ["flexfl", "deploy", "status", "kits/admin"]
from flexfl.cli.main import main
main()
"""


def test_deploy_says_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NVFLARE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("flexfl: flexfl deploy needs nvflare, which is not installed; ")
    assert "pip install '.[deploy]'" in done.stderr
