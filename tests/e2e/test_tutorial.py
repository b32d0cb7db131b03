"""The tutorial is true: its blocks run, in their order, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

from flexfl.spec.build import build_costs
from flexfl.spec.schema import parse

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = DOCS / "tutorial.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def test_the_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))
    python = "\n".join(text for kind, text in blocks if kind == "python")
    names: dict[str, object] = {}
    exec(compile(python, str(TUTORIAL), "exec"), names)

    (toml,) = [text for kind, text in blocks if kind == "toml"]
    (bash,) = [text for kind, text in blocks if kind == "bash"]
    Path("workshops.toml").write_text(toml, encoding="utf-8")
    Path("workshop.py").write_text(
        "from torch import nn\n\ndef network():\n    return nn.Linear(12, 4)\n", encoding="utf-8"
    )
    data = names["data"]
    arrays = {name: np.asarray(getattr(data, name)) for name in ("train_x", "train_y", "test_x", "test_y")}
    np.savez("workshops.npz", **arrays)
    bin_folder = str(Path(sys.executable).parent)
    for command in bash.strip().splitlines():
        ended = subprocess.run(
            [f"{bin_folder}/{command.split()[0]}", *command.split()[1:]], capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
    assert Path("runs/from-file/report/report.html").is_file()
    assert Path("runs/from-file/evaluations.csv").is_file()


def test_the_page_on_extending_runs(monkeypatch):
    monkeypatch.chdir(DOCS.parent)  # where examples/ lies
    blocks = BLOCK.findall((DOCS / "extending.md").read_text(encoding="utf-8"))
    python = "\n".join(text for kind, text in blocks if kind == "python")
    exec(compile(f"import numpy as np\n{python}", "extending.md", "exec"), {})
    (toml,) = [text for kind, text in blocks if kind == "toml"]
    costs = build_costs(parse(tomllib.loads(toml)))
    assert costs["uplink"].factors == [1.0, 2.0, 0.5]
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    members = re.findall(r"\((\.\./examples/\w+\.py)\)", text)
    assert len(members) >= 4
    for link in members:
        assert len((DOCS / link).read_text(encoding="utf-8").splitlines()) <= 60
