"""A process in which only what a lean client installs can be imported: `python lean_process.py COMMAND …`.

federation FOLDER   a server and four clients train over a link in this process
flexfl ARGUMENT…    the command line
simulate            flexfl.simulate is looked up
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from importlib import resources
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMPORT_NAMES = {"pillow": "PIL", "tomli-w": "tomli_w"}
BESIDES = {"llvmlite"}
"""What comes only with those that a lean client lacks."""


def name_of(requirement: str) -> str:
    """Return the distribution's name, without version and extras."""
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0]


def client_requirements() -> list[str]:
    text = (resources.files("flexfl.deploy") / "requirements-client.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def absent() -> set[str]:
    """Return the import names of all that pyproject.toml asks for and a lean client does not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (line for extra in project["optional-dependencies"].values() for line in extra)
    everything = {name_of(line) for line in (*project["dependencies"], *extras)}
    lacking = everything - {name_of(line) for line in client_requirements()} - {project["name"]}
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in lacking} | BESIDES


class Absent(MetaPathFinder):
    """Hides packages, as if they were not installed."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(command: str, *arguments: str) -> None:
    sys.meta_path.insert(0, Absent(absent()))
    if command == "federation":
        sys.path.insert(0, str(ROOT / "tests"))
        from deploy.in_memory import deploy, small_spec

        deploy(Path(arguments[0]), small_spec())
    elif command == "flexfl":
        sys.argv = ["flexfl", *arguments]
        from flexfl.cli.main import main as command_line

        command_line()
    else:
        import flexfl

        print(flexfl.simulate)  # noqa: T201
    loaded = absent() & {name.partition(".")[0] for name in sys.modules}
    assert not loaded, loaded


if __name__ == "__main__":
    main(*sys.argv[1:])
